//! Tests of headers: those that netCDF4 and scipy wrote (the golden files), and those that are refused.

use super::*;

/// A header that is put together by hand.
#[derive(Clone)]
struct File(Vec<u8>, u8);

impl File {
    fn new(version: u8, records: u64) -> Self {
        Self([MAGIC, &[version]].concat(), version).count(records)
    }

    fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn count(self, number: u64) -> Self {
        if self.1 == 5 { self.u64(number) } else { self.u32(number as u32) }
    }

    fn name(self, name: &[u8]) -> Self {
        let mut file = self.count(name.len() as u64);
        file.0.extend(name);
        file.0.resize(file.0.len().next_multiple_of(4), 0);
        file
    }

    fn list(self, tag: u32, count: u64) -> Self {
        self.u32(tag).count(count)
    }

    fn none(self) -> Self {
        self.list(0, 0)
    }

    /// A variable without attributes, of this type, at byte 100.
    fn variable(self, name: &[u8], dimensions: &[u64], code: u32) -> Self {
        let file = self.name(name).count(dimensions.len() as u64);
        let file = dimensions.iter().fold(file, |file, number| file.count(*number)).none().u32(code).count(0);
        if file.1 == 1 { file.u32(100) } else { file.u64(100) }
    }

    fn class(&self) -> Option<Class> {
        match parse(&self.0) {
            Ok(_) => None,
            Err(FormatError::Refused { class, .. }) => Some(class),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Dimensions `t` (records), `x` (3) and `y` (a length), and no attributes.
fn with_dimensions(version: u8, records: u64, y: u64) -> File {
    let file = File::new(version, records).list(DIMENSIONS, 3).name(b"t").count(0).name(b"x").count(3);
    file.name(b"y").count(y).none()
}

#[test]
fn records_of_one_variable_alone_are_not_padded() {
    let alone = with_dimensions(1, 4, 5).list(VARIABLES, 1).variable(b"v", &[0, 1], 3);
    let found = parse(&alone.0).unwrap();
    assert_eq!(found.shape(&found.variables[0]), [4, 3]);
    assert_eq!(found.variables[0].place, Place { start: 100, stride: 24, width: 24 });
    let two = with_dimensions(2, 4, 5).list(VARIABLES, 3).variable(b"v", &[0, 1], 3).variable(b"w", &[0], 1);
    let found = parse(&two.variable(b"f", &[2], 6).0).unwrap();
    assert_eq!(found.variables[0].place, Place { start: 100, stride: 12, width: 6 });
    assert_eq!(found.variables[1].place, Place { start: 100, stride: 12, width: 1 });
    assert_eq!(found.variables[2].place, Place { start: 100, stride: 40, width: 40 });
}

#[test]
fn records_of_a_file_that_is_streamed_follow_from_its_length() {
    for (version, records) in [(1, u64::from(u32::MAX)), (5, u64::MAX)] {
        let mut file = with_dimensions(version, records, 5).list(VARIABLES, 1).variable(b"v", &[0, 1], 3);
        file.0.resize(100.max(file.0.len()), 0);
        let behind = file.0.len() as u64 - 100;
        file.0.extend([0; 20]);
        let found = parse(&file.0).unwrap();
        assert_eq!(found.shape(&found.variables[0]), [(behind + 20) / 6, 3], "CDF-{version}");
    }
    // Without record variables there are no records to count.
    let none = with_dimensions(1, u64::from(u32::MAX), 5).none();
    assert_eq!(parse(&none.0).unwrap().dimensions[0].length, 0);
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let bad = Some(Class::BadHeader);
    assert_eq!(File(b"CDF\x03".to_vec(), 1).class(), Some(Class::NoSignature));
    assert_eq!(File(b"CDF".to_vec(), 1).class(), Some(Class::NoSignature));
    assert_eq!(File::new(1, 0).none().none().none().class(), None);
    assert_eq!(File::new(1, 0).list(DIMENSIONS, 0).list(ATTRIBUTES, 0).list(VARIABLES, 0).class(), None);
    assert_eq!(File::new(1, 0).list(VARIABLES, 0).none().none().class(), bad);
    assert_eq!(File::new(1, 0).list(0, 1).none().none().class(), bad);
    let of = |dimensions: &[u64], code: u32, version: u8| {
        with_dimensions(version, 1, 5).list(VARIABLES, 1).variable(b"v", dimensions, code).class()
    };
    assert_eq!(of(&[0, 1, 2], 6, 1), None);
    assert_eq!(of(&[1, 0], 6, 1), bad);
    assert_eq!(of(&[3], 6, 1), bad);
    for (code, version, class) in [(0, 5, bad), (7, 1, bad), (7, 2, bad), (7, 5, None), (11, 5, None), (12, 5, bad)] {
        assert_eq!(of(&[1], code, version), class, "type {code} in CDF-{version}");
    }
    let empty_name = with_dimensions(1, 0, 5).list(VARIABLES, 1).variable(b"", &[], 1);
    assert_eq!(empty_name.class(), bad);
    let second = File::new(1, 0).list(DIMENSIONS, 2).name(b"a").count(0).name(b"b").count(0);
    assert_eq!(second.none().none().class(), bad);
    assert_eq!(with_dimensions(5, 0, 1 << 63).none().class(), bad);
    let large = |y| with_dimensions(5, 1, y).list(VARIABLES, 1).variable(b"v", &[2, 1], 6).class();
    assert_eq!(large(1 << 57), None);
    assert_eq!(large(1 << 58), bad);
    assert_eq!(with_dimensions(5, 1 << 60, 5).list(VARIABLES, 1).variable(b"v", &[0, 1], 6).class(), bad);
}

#[test]
fn counts_that_the_file_has_no_room_for_take_no_memory() {
    for count in [1 << 60, u64::MAX, 1 << 24] {
        assert_eq!(File::new(5, 0).list(DIMENSIONS, count).class(), Some(Class::BadHeader), "{count}");
        assert_eq!(File::new(5, 0).none().list(ATTRIBUTES, count).class(), Some(Class::BadHeader), "{count}");
        assert_eq!(File::new(5, 0).none().none().list(VARIABLES, count).class(), Some(Class::BadHeader), "{count}");
    }
    let attribute = |code: u32, count: u64| {
        File::new(5, 0).none().list(ATTRIBUTES, 1).name(b"a").u32(code).count(count).u64(0).class()
    };
    assert_eq!(attribute(6, 1 << 61), Some(Class::BadHeader));
    assert_eq!(attribute(6, 1000), Some(Class::Truncated));
    assert_eq!(attribute(2, 1000), Some(Class::Truncated));
    assert_eq!(File::new(5, 0).list(DIMENSIONS, 1000).class(), Some(Class::Truncated));
}

#[test]
fn every_cut_of_a_header_is_refused() {
    let whole = with_dimensions(2, 1, 5).list(VARIABLES, 1).variable(b"v", &[0, 1], 3);
    assert_eq!(whole.class(), None);
    for length in 4..whole.0.len() {
        assert_eq!(File(whole.0[..length].to_vec(), 2).class(), Some(Class::Truncated), "{length}");
    }
}

#[test]
fn attributes_are_texts_without_nuls_and_numbers_in_place() {
    let mut file = File::new(1, 0).none().list(ATTRIBUTES, 2).name(b"t").u32(2);
    file = file.name(b"ab\0c\0").name(b"n").u32(3).count(3).u32(0).u32(0).none();
    let found = parse(&file.0).unwrap();
    assert!(matches!(&found.attributes[0].values, Values::Text(text) if **text == *b"ab\0c"));
    let at = file.0.len() as u64 - 16;
    assert!(matches!(found.attributes[1].values, Values::Numbers(DType::I16, 3, place) if place == at));
}
