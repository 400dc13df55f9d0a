use std::{
    fs,
    os::unix::fs::{FileExt, PermissionsExt, symlink},
    thread,
};

use super::*;

const LIMITS: Limits = Limits { size: 64 << 20, free: 0, queue: 32 << 20 };
const LONG: Duration = Duration::from_secs(60);

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

fn put(disk: &Disk, key: &[u8], bytes: Vec<u8>) {
    assert!(disk.put(key, Arc::new(bytes)));
    assert!(disk.flush(LONG));
}

fn read(blob: &Blob) -> io::Result<Vec<u8>> {
    let mut all = vec![0; blob.len() as usize];
    blob.read_at(0, &mut all).map(|()| all)
}

/// The files of all blobs.
fn files(folder: &Path) -> Vec<PathBuf> {
    let parts = fs::read_dir(folder).unwrap().map(|part| part.unwrap().path());
    let parts = parts.filter(|part| part.is_dir() && part.file_name().unwrap() != "tmp");
    parts.flat_map(|part| fs::read_dir(part).unwrap()).map(|file| file.unwrap().path()).collect()
}

#[test]
fn blobs_of_all_sizes_come_back_whole_and_in_ranges() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("a/b/blocks");
    let sizes = [0, 1, 4095, 65_535, 65_536, 65_537, 1 << 20, (5 << 20) + 3, 70 << 16];
    {
        let disk = Disk::open(&place, LIMITS).unwrap();
        for size in sizes {
            put(&disk, format!("of {size}").as_bytes(), bytes(size, 7));
        }
        assert!(disk.get(b"of another").is_none() && !disk.contains(b"of another"));
    }
    // Another process would see the same.
    let disk = Disk::open(&place, LIMITS).unwrap();
    for size in sizes {
        let key = format!("of {size}");
        let (blob, expected) = (disk.get(key.as_bytes()).unwrap(), bytes(size, 7));
        assert_eq!((blob.len(), blob.is_empty()), (size as u64, size == 0));
        assert!(read(&blob).unwrap() == expected && disk.contains(key.as_bytes()));
        blob.check().unwrap();
        for (from, to) in [(0, 1), (1, 70_000), (65_536, 131_072), (65_535, 65_537), (100, 100), (size, size)] {
            if from <= to && to <= size {
                let mut part = vec![0; to - from];
                blob.read_at(from as u64, &mut part).unwrap();
                assert!(part == expected[from..to], "{from}..{to} of {size}");
            }
        }
        for outside in [size as u64, u64::MAX] {
            assert_eq!(blob.read_at(outside, &mut [0]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
    let usage = disk.usage().unwrap();
    assert_eq!((usage.blobs, usage.bytes % 4096), (sizes.len() as u64, 0));
    assert_eq!(disk.counters().hits.load(Relaxed), sizes.len() as u64);
    assert_eq!(disk.counters().misses.load(Relaxed), 0);
    let modes: Vec<u32> = files(&place).iter().map(|f| fs::metadata(f).unwrap().permissions().mode() & 0o777).collect();
    assert!(modes.iter().all(|mode| *mode == 0o600));
    assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(place.join("tmp")).unwrap().count(), 0);
    // What is held is readable after it was removed.
    let blob = disk.get(b"of 1048576").unwrap();
    disk.remove(b"of 1048576");
    assert!(disk.get(b"of 1048576").is_none());
    assert!(read(&blob).unwrap() == bytes(1 << 20, 7));
    assert_eq!(disk.clear().unwrap().blobs, sizes.len() as u64 - 1);
    assert_eq!(disk.usage().unwrap(), Usage::default());
}

#[test]
fn what_is_written_past_the_page_cache_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(&folder.path().join("blocks"), LIMITS).unwrap();
    // Whole pages and not, too little to be worth it, and memory that begins in the middle of a page.
    let cases = [(1 << 20, 0), (512 << 10, 0), ((1 << 20) + 4097, 0), ((2 << 20) - 1, 0), (8192, 0), (1 << 20, 16)];
    for (size, from) in cases {
        let mut pages = memmap2::MmapMut::map_anon(size + from).unwrap();
        pages[from..].copy_from_slice(&bytes(size, 3));
        let key = format!("{size} from {from}");
        assert!(disk.put(key.as_bytes(), Arc::new(From(pages, from))));
        assert!(disk.flush(LONG));
        let blob = disk.get(key.as_bytes()).unwrap();
        assert!(read(&blob).unwrap() == bytes(size, 3), "{key}");
        blob.check().unwrap();
    }
    assert_eq!(disk.counters().written.load(Relaxed), cases.len() as u64);
    assert_eq!(disk.usage().unwrap().blobs, cases.len() as u64);
}

/// Memory from a place in it on.
struct From(memmap2::MmapMut, usize);

impl AsRef<[u8]> for From {
    fn as_ref(&self) -> &[u8] {
        &self.0[self.1..]
    }
}

#[test]
fn no_damage_is_handed_out() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(&folder.path().join("d"), LIMITS).unwrap();
    let (key, whole) = (b"store\0key\0etag\x005".as_slice(), bytes(200_000, 3));
    let stored = || {
        put(&disk, key, whole.clone());
        files(&disk.path()).pop().unwrap()
    };
    let size = fs::metadata(stored()).unwrap().len();
    let mut found = 0;
    // Any byte, and any length; what was not written by a power failure reads as zeros.
    for at in (0..size).step_by(9_973).chain(size - 120..size) {
        let file = fs::File::options().read(true).write(true).open(stored()).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        match disk.get(key).map(|blob| read(&blob)) {
            None => assert!(at >= 200_000),
            Some(read) => assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData, "byte {at}"),
        }
        found += 1;
        assert_eq!(disk.counters().corrupt.load(Relaxed), found, "byte {at}");
        assert!(!disk.contains(key), "removed");
    }
    for length in [0, 1, 31, 4096, 199_999, 200_000, size - 1, size + 1, 10 << 20] {
        let file = fs::File::options().write(true).open(stored()).unwrap();
        file.set_len(length).unwrap();
        assert!(disk.get(key).is_none(), "{length}");
        found += 1;
    }
    // Elsewhere than at its place it has another key.
    fs::copy(stored(), folder.path().join("copy")).unwrap();
    put(&disk, b"another", bytes(10, 0));
    let other = files(&disk.path()).into_iter().find(|file| fs::metadata(file).unwrap().len() < 200).unwrap();
    fs::copy(folder.path().join("copy"), other).unwrap();
    assert!(disk.get(b"another").is_none());
    assert_eq!(disk.counters().corrupt.load(Relaxed), found + 1);
    // A part that was not damaged is right, and a damaged one is found while the blob is held.
    let file = fs::File::options().write(true).open(stored()).unwrap();
    let blob = disk.get(key).unwrap();
    file.write_all_at(b"x", 150_000).unwrap();
    let mut part = [0; 1000];
    blob.read_at(5, &mut part).unwrap();
    assert_eq!(part, whole[5..1005]);
    assert!(blob.read_at(149_000, &mut part).is_err() && blob.check().is_err());
}

#[test]
fn the_least_recently_used_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(&folder.path().join("d"), Limits { size: 10 << 20, ..LIMITS }).unwrap();
    let age = |name: &str, seconds| {
        let file = files(&disk.path()).into_iter().find(|file| file.ends_with(folder::name(&hash(name.as_bytes()))));
        let then = std::time::SystemTime::now() - Duration::from_secs(seconds);
        let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
        fs::File::options().write(true).open(file.unwrap()).unwrap().set_times(times).unwrap();
    };
    for number in 0..8 {
        put(&disk, format!("{number}").as_bytes(), bytes(1 << 20, number));
        age(&format!("{number}"), 1000 - u64::from(number));
    }
    // Used: it stays, though it is the oldest.
    assert!(disk.get(b"0").is_some());
    for number in 8..11 {
        put(&disk, format!("{number}").as_bytes(), bytes(1 << 20, number));
    }
    let there = |number: u8| disk.contains(format!("{number}").as_bytes());
    assert!(there(0) && !there(1) && there(9) && there(10));
    assert!(disk.usage().unwrap().bytes <= 10 << 20);
    assert!(disk.counters().evicted.load(Relaxed) > 0);
    // What is larger than half of it is not kept, nothing goes for it.
    assert!(disk.put(b"large", Arc::new(bytes(6 << 20, 0))) && disk.flush(LONG));
    assert!(!disk.contains(b"large") && there(0) && disk.counters().dropped.load(Relaxed) == 1);
    let left = disk.usage().unwrap();
    let freed = disk.prune(3 << 20).unwrap();
    let now = disk.usage().unwrap();
    assert!(now.bytes <= 3 << 20 && now.bytes > 1 << 20 && now.blobs + freed.blobs == left.blobs);
    assert!(there(10));
}

#[test]
fn folders_of_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |place: &Path| Disk::open(place, LIMITS).unwrap_err().kind() == io::ErrorKind::PermissionDenied;
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    for mode in [0o755, 0o701, 0o1777] {
        fs::set_permissions(&open, PermissionsExt::from_mode(mode)).unwrap();
        assert!(refused(&open));
    }
    fs::set_permissions(&open, PermissionsExt::from_mode(0o700)).unwrap();
    Disk::open(&open, LIMITS).unwrap();
    let link = folder.path().join("link");
    symlink(&open, &link).unwrap();
    assert!(refused(&link));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(Disk::open(&file, LIMITS).is_err());
    let missing = Disk::existing(&folder.path().join("missing"), LIMITS).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    // Whatever stands at a blob's place is not followed, waited for or removed by force.
    let disk = Disk::open(&open, LIMITS).unwrap();
    put(&disk, b"a", bytes(10, 1));
    let at = files(&open).pop().unwrap();
    fs::remove_file(&at).unwrap();
    symlink("/etc/passwd", &at).unwrap();
    assert!(disk.get(b"a").is_none() && !disk.contains(b"a"));
    assert!(disk.is_resting(), "an error that the disk gave");
}

#[test]
fn a_full_queue_drops_and_never_waits() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { queue: 1 << 20, ..LIMITS };
    let disk = Disk::open(&folder.path().join("d"), limits).unwrap();
    // A longer one is taken as long as it is alone.
    assert!(disk.put(b"more than the queue", Arc::new(bytes(2 << 20, 0))));
    assert!(disk.flush(LONG));
    assert!(!disk.put(&[0; LONGEST_KEY + 1], Arc::new(bytes(2, 0))));
    let mut taken = 0_u64;
    for number in 0..200_u32 {
        taken += u64::from(disk.put(&number.to_le_bytes(), Arc::new(bytes(300_000, number as u8))));
        assert!(disk.queued() <= 1 << 20);
    }
    assert!(disk.flush(LONG));
    assert!(taken >= 3);
    assert_eq!(disk.counters().dropped.load(Relaxed), 201 - taken);
    assert_eq!(disk.usage().unwrap().blobs, taken + 1);
    assert_eq!(disk.queued(), 0);
}

#[test]
fn what_waits_to_be_written_is_found() {
    struct Gate(Mutex<std::sync::mpsc::Receiver<()>>, Vec<u8>);
    impl AsRef<[u8]> for Gate {
        fn as_ref(&self) -> &[u8] {
            // The thread that writes stops here until the test lets it go on.
            if thread::current().name() == Some("disk-cache") {
                let _ = self.0.lock().recv();
            }
            &self.1
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(&folder.path().join("d"), LIMITS).unwrap();
    let (go, stop) = std::sync::mpsc::channel();
    assert!(
        disk.put(b"first", Arc::new(Gate(Mutex::new(stop), bytes(1000, 1))))
            && disk.put(b"second", Arc::new(bytes(50, 2)))
    );
    assert!(!disk.flush(Duration::from_millis(50)));
    assert!(disk.contains(b"second") && read(&disk.get(b"second").unwrap()).unwrap() == bytes(50, 2));
    disk.remove(b"second");
    assert!(disk.get(b"second").is_none());
    disk.remove(b"first");
    drop(go);
    assert!(disk.flush(LONG));
    // What was removed while it was being written does not come back.
    drop(disk);
    let disk = Disk::open(&folder.path().join("d"), LIMITS).unwrap();
    assert!(disk.get(b"first").is_none() && disk.get(b"second").is_none());
}

#[test]
fn many_threads_and_two_caches_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { size: 8 << 20, ..LIMITS };
    let disks = [0, 1].map(|_| Disk::open(&folder.path().join("d"), limits).unwrap());
    thread::scope(|scope| {
        for thread in 0..4_u32 {
            let disk = &disks[thread as usize % 2];
            scope.spawn(move || {
                for round in 0..300_u32 {
                    let number = (round * 7 + thread * 13) % 40;
                    let key = number.to_le_bytes();
                    let expected = || bytes(200_000 + number as usize, number as u8);
                    match disk.get(&key) {
                        Some(blob) => assert!(read(&blob).unwrap() == expected()),
                        None => drop(disk.put(&key, Arc::new(expected()))),
                    }
                }
            });
        }
    });
    for disk in &disks {
        assert!(disk.flush(LONG));
        assert_eq!((disk.counters().corrupt.load(Relaxed), disk.counters().errors.load(Relaxed)), (0, 0));
    }
    // Each looks at all files again after it has written a sixteenth.
    assert!(disks[0].usage().unwrap().bytes <= 9 << 20);
}

#[test]
fn plain_files_are_their_payload_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(&folder.path().join("d"), LIMITS).unwrap();
    let content: Arc<Vec<u8>> = Arc::new(bytes(300_000, 5));
    let store = || {
        assert!(disk.put_file(Way::Cached, b"file", (b"part", 128..299_000), content.clone()));
        // On its way it can be read, but is no file yet.
        assert!(disk.flush(LONG));
    };
    let plain = || files(&disk.path()).into_iter().find(|file| fs::metadata(file).unwrap().len() == 300_000);
    store();
    let (whole, part) = (disk.get_file(b"file").unwrap(), disk.get_file(b"part").unwrap());
    assert_eq!((whole.len(), part.len()), (300_000, 298_872));
    assert!(read(&whole).unwrap() == *content && read(&part).unwrap() == content[128..299_000]);
    whole.check().unwrap();
    let mut some = vec![0; 70_000];
    part.read_at(65_000, &mut some).unwrap();
    assert!(some == content[65_128..135_128]);
    assert!(part.read_at(298_872, &mut [0]).is_err(), "no byte behind the part");
    let own = whole.try_clone_file().unwrap().unwrap();
    assert_eq!(own.metadata().unwrap().len(), 300_000);
    assert!(fs::read(plain().unwrap()).unwrap() == *content);
    assert!(!disk.put_file(Way::Cached, b"file", (b"part", 0..300_001), content.clone()), "a part that is not in it");

    // A read finds damage; the file and its names are then removed.
    let damage = |at| {
        let file = fs::File::options().write(true).open(plain().unwrap()).unwrap();
        file.write_all_at(&[content[at as usize] ^ 1], at).unwrap();
    };
    damage(200_000);
    assert_eq!(disk.get_file(b"file").unwrap().check().unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(plain().is_none() && disk.get_file(b"file").is_none() && disk.get_file(b"part").is_none());
    assert!(!disk.contains(b"file") && !disk.contains(b"part"));
    store();
    fs::File::options().write(true).open(plain().unwrap()).unwrap().set_len(299_999).unwrap();
    assert!(disk.get_file(b"part").is_none());
    // What is held stays readable.
    store();
    let held = disk.get_file(b"file").unwrap();
    disk.clear().unwrap();
    assert!(disk.get_file(b"file").is_none() && read(&held).unwrap() == *content);
    assert_eq!(disk.usage().unwrap(), Usage::default());
    // Another file at its place has other checksums.
    store();
    fs::write(plain().unwrap(), bytes(300_000, 6)).unwrap();
    assert!(disk.get_file(b"file").unwrap().check().is_err());
    // Another file with these bytes is not the one that was checked.
    store();
    let id = state(&disk.get_file(b"file").unwrap().try_clone_file().unwrap().unwrap()).unwrap();
    assert_ne!(id, state(&own).unwrap());
    assert_eq!(id, state(&disk.get_file(b"part").unwrap().try_clone_file().unwrap().unwrap()).unwrap());
}

#[test]
fn a_plain_file_that_nothing_wrote_to_is_checked_once() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Disk::open(&folder.path().join("d"), LIMITS).unwrap();
    let content = Arc::new(bytes(300_000, 5));
    let path = || files(&folder.path().join("d")).into_iter().find(|path| path.metadata().unwrap().len() == 300_000);
    let write = |bytes: &[u8], keeps_time: bool| {
        let file = fs::File::options().write(true).open(path().unwrap()).unwrap();
        let times = fs::FileTimes::new().set_modified(file.metadata().unwrap().modified().unwrap());
        file.write_all_at(bytes, 200_000).unwrap();
        if keeps_time {
            file.set_times(times).unwrap();
        }
    };
    let check = |disk: &Arc<Disk>| disk.check_file(b"file", &disk.get_file(b"file").unwrap());
    let damage = [content[200_000] ^ 1];
    assert!(
        open().put_file(Way::Cached, b"file", (b"part", 0..300_000), content.clone()),
        "dropped, it has written it"
    );
    // Whether it is compared can only be seen by damage that leaves its times alone. It is not: it was just written.
    write(&damage, true);
    check(&open()).unwrap();
    // A write makes it another state: compared, and after that not any more.
    write(&content[200_000..200_001], false);
    let disk = open();
    check(&disk).unwrap();
    assert!(disk.flush(LONG));
    write(&damage, true);
    check(&open()).unwrap();
    write(&damage, false);
    assert_eq!(check(&open()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(path().is_none() && open().get_file(b"file").is_none());
}

#[test]
fn what_a_cache_holds_waits_for_its_turn() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(&folder.path().join("d"), Limits { queue: 1 << 20, ..LIMITS }).unwrap();
    let blocks: Vec<Arc<Vec<u8>>> = (0..40).map(|number| Arc::new(bytes(1 << 20, number))).collect();
    let key = |number: usize| format!("block {number}").into_bytes();
    for (number, block) in blocks.iter().enumerate() {
        assert!(disk.put_by(Way::Cached, &key(number), block.clone()));
        assert!(disk.queued() <= 1 << 20, "no more is held than the queue may hold");
    }
    assert!(disk.flush(LONG));
    for (number, block) in blocks.iter().enumerate() {
        assert!(read(&disk.get(&key(number)).unwrap()).unwrap() == **block);
        assert_eq!(Arc::strong_count(block), 1);
    }
    assert_eq!(disk.counters().dropped.load(Relaxed), 0);
    // What the cache gives up meanwhile is lost, and nothing else is.
    disk.clear().unwrap();
    let before = disk.counters().written.load(Relaxed);
    let given_up: Vec<_> = (0..40).map(|number| Arc::new(bytes(1 << 20, number))).collect();
    given_up
        .iter()
        .enumerate()
        .for_each(|(number, block)| assert!(disk.put_by(Way::Cached, &key(number), block.clone())));
    drop(given_up);
    assert!(disk.flush(LONG));
    let (written, dropped) = (disk.counters().written.load(Relaxed) - before, disk.counters().dropped.load(Relaxed));
    assert_eq!(written + dropped, 40);
    assert_eq!((0..40).filter(|number| disk.contains(&key(*number))).count() as u64, written);
}
