//! The cache of blobs on disk, by processes of their own: killed while they write, two at a time, on a full disk.
//!
//! This program is also those processes: with `SHARDFS_DISK_ROLE` set, [`the_other_process`] plays that role.
//! `SHARDFS_KILLS` is how often one is killed (`scripts/disk_kills` does it a thousand times).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use shardfs::disk::{Disk, Limits};

const ROLE: &str = "SHARDFS_DISK_ROLE";
const PLACE: &str = "SHARDFS_DISK_PLACE";
const LONG: Duration = Duration::from_secs(60);
const LIMITS: Limits = Limits { size: 24 << 20, free: 0, queue: 8 << 20 };

/// The payload that belongs to a key: each has its own, of its own size.
fn payload(number: u64) -> Vec<u8> {
    let length = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44) as usize;
    let mut state = number.wrapping_add(0xD1B5_4A32_D192_ED03);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = (state ^ (state << 13)).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ (state >> 7);
        bytes.extend(state.to_le_bytes());
    }
    bytes
}

fn key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Reads everything that is there of `numbers`; what comes back is right. How many were there.
fn look(disk: &Disk, numbers: u64) -> u64 {
    let mut found = 0;
    for number in 0..numbers {
        let Some(blob) = disk.get(&key(number)) else { continue };
        let mut bytes = vec![0; blob.len() as usize];
        blob.read_at(0, &mut bytes).unwrap();
        assert!(bytes == payload(number), "blob {number}");
        found += 1;
    }
    found
}

#[test]
fn the_other_process() {
    let Ok(role) = env::var(ROLE) else { return };
    let disk = Disk::open(Path::new(&env::var(PLACE).unwrap()), LIMITS).unwrap();
    match &*role {
        // Writes until it is killed.
        "write" => {
            println!("ready");
            for round in 0_u64.. {
                disk.put(&key(round * 17 % 60), Arc::new(payload(round * 17 % 60)));
                if round % 8 == 0 {
                    disk.flush(LONG);
                }
            }
        }
        // Reads and writes for some time.
        "share" => {
            for round in 0..40 {
                look(&disk, 60);
                for number in (round..60).step_by(7) {
                    disk.put(&key(number), Arc::new(payload(number)));
                }
                disk.flush(LONG);
            }
            assert_eq!((disk.counters().corrupt.load(Relaxed), disk.counters().errors.load(Relaxed)), (0, 0));
        }
        // On a filesystem of 8 MiB that others fill: neither of these calls fails or waits, and what is there is right.
        "full" => {
            for number in 0..60 {
                disk.put(&key(number), Arc::new(payload(number)));
                disk.flush(LONG);
            }
            let kept = look(&disk, 60);
            assert!(kept > 0 && kept < 60, "{kept} of 60");
            let filler = Path::new(&env::var(PLACE).unwrap()).with_file_name("filler");
            let filled = std::fs::write(&filler, vec![1; 16 << 20]);
            assert_eq!(filled.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
            disk.put(&key(100), Arc::new(payload(100)));
            disk.flush(LONG);
            // It has made room where it could, or has not kept this one; no blob is torn either way.
            look(&disk, 101);
            assert_eq!(disk.counters().corrupt.load(Relaxed), 0);
            assert_eq!(std::fs::read_dir(disk.path().join("tmp")).unwrap().count(), 0);
            println!("{kept} of 60 kept");
        }
        other => panic!("{other}"),
    }
}

fn start(role: &str, place: &Path) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "the_other_process", "--nocapture"]).env(ROLE, role).env(PLACE, place);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_process_that_is_killed_leaves_no_torn_blob() {
    let kills = env::var("SHARDFS_KILLS").map_or(25, |kills| kills.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("cache");
    let mut found = 0;
    for round in 0_u64..kills {
        let mut child = start("write", &place);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("ready")));
        // At any moment: the time is spread over what some files take.
        std::thread::sleep(Duration::from_micros(round * 7919 % 30_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let disk = Disk::open(&place, LIMITS).unwrap();
        found += look(&disk, 60);
        assert_eq!((disk.counters().corrupt.load(Relaxed), disk.counters().errors.load(Relaxed)), (0, 0));
    }
    assert!(found > kills, "{found}");
    // What it was writing is removed by the next write or sweep of the folder.
    let disk = Disk::open(&place, LIMITS).unwrap();
    disk.prune(LIMITS.size).unwrap();
    assert_eq!(std::fs::read_dir(place.join("tmp")).unwrap().count(), 0);
    println!("killed {kills} times, {found} blobs read and right");
}

#[test]
fn processes_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("cache");
    let mut children: Vec<Child> = (0..3).map(|_| start("share", &place)).collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let disk = Disk::open(&place, LIMITS).unwrap();
    assert!(look(&disk, 60) > 5);
    // Each looks again after a sixteenth of the limit, so that they are beyond it by little.
    assert!(disk.usage().unwrap().bytes <= LIMITS.size / 16 * 19);
}

#[test]
fn a_full_disk_is_a_cache_that_keeps_less() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap();
    let program = env::current_exe().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=8m,mode=0700 tmpfs {at} && exec {} --exact the_other_process --nocapture",
        program.to_str().unwrap()
    );
    // A mount of its own, in a namespace of its own: no root needed, and nothing to take down.
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", &script]);
    let status = command.env(ROLE, "full").env(PLACE, folder.path().join("cache")).status().unwrap();
    assert!(status.success(), "{status}");
}
