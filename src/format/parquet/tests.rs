//! Tests with footers and pages that no writer makes.

use super::*;
use crate::source::Unlimited;

#[test]
fn files_without_a_footer_are_refused() {
    let read = |bytes: &[u8]| match File::read(&bytes.to_vec(), &Unlimited).unwrap_err() {
        PartError::Damaged(reason) => reason,
        PartError::Source(error) => panic!("{error}"),
    };
    assert!(read(b"PAR1").contains("no Parquet file"));
    assert!(read(b"PAR1aaaaaaaaaaaaa").contains("was not finished"));
    assert!(read(b"PAR1\0\0\0\0\0\0\0\0PARE").contains("encrypted"));
    assert!(read(b"PAR1\xff\xff\xff\x7fPAR1").contains("a footer of 2147483647 bytes"));
    assert!(read(b"PAR1\0\0\0\0PAR1").contains("inside a structure"));
}
