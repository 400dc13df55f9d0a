use std::fs;

use super::*;
use crate::vfs::{Options, TEST_PANIC};

/// A mount in this process, taken down at the end.
struct Mounted {
    root: tempfile::TempDir,
    vfs: Arc<Vfs>,
}

impl Mounted {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let (source, mount_point) = (root.path().join("source"), root.path().join("mount"));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&mount_point).unwrap();
        fs::write(source.join("file"), b"content").unwrap();
        let vfs = Arc::new(Vfs::open(&source, Options::default()).unwrap());
        let config = MountConfig { allow_other: false, threads: 2 };
        let mount = Mount::new(vfs.clone(), &mount_point, &config).unwrap();
        std::thread::spawn(move || mount.serve());
        Self { root, vfs }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join("mount").join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.root.path().join("mount"), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_panic_is_an_error_of_one_request() {
    let mounted = Mounted::new();
    // More often than there are threads: none of them may be lost.
    for _ in 0..10 {
        let error = fs::metadata(mounted.path(TEST_PANIC)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"content");
    let problems = mounted.vfs.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].message.contains("this name is for tests of panics"), "{problems:?}");
}
