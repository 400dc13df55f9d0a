//! Confines a decoder's process: it keeps only memory, its socket and the shared memory.

use std::collections::BTreeMap;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::Refused;

/// Bytes of memory that a decoder may take for pictures of any size.
const BASE: u64 = 256 << 20;
/// Bytes of memory that it may take in addition for each byte of a picture's pixels: references, motion vectors,
/// tables.
const A_PIXEL_BYTE: u64 = 24;

/// Confines this process, which has one thread. `frame` is the size of the shared memory in bytes.
pub(super) fn confine(frame: u64) -> Result<(), Refused> {
    close_others();
    let taken = taken().ok_or("its memory cannot be counted")?;
    let most = taken.saturating_add(BASE).saturating_add(frame.saturating_mul(A_PIXEL_BYTE));
    let limits = [(Resource::As, most), (Resource::Core, 0), (Resource::Nofile, 0), (Resource::Fsize, frame)];
    for (resource, most) in limits {
        // Only root may raise a limit.
        let most = getrlimit(resource).maximum.map_or(most, |maximum| most.min(maximum));
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(|error| format!("a limit cannot be set: {error}"))?;
    }
    filter_calls().map_err(|error| format!("system calls cannot be filtered: {error}"))
}

/// Closes all descriptors except the first three.
fn close_others() {
    #[allow(unsafe_code, reason = "no other part of this process has descriptors to lose")]
    // SAFETY: the process has just begun, and owns no descriptor beyond its standard ones.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
    }
}

/// Returns the bytes of address space that are in use.
fn taken() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let kib: u64 = size.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Makes the kernel end this process if it makes a system call that decoding does not need.
fn filter_calls() -> Result<(), Box<dyn std::error::Error>> {
    let free = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_pwrite64,
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_sched_yield,
        libc::SYS_clock_gettime,
        libc::SYS_getrandom,
        libc::SYS_sigaltstack,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = free.map(|call| (call, Vec::new())).into();
    // Memory, but not executable.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let is_data = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
        let rule = SeccompRule::new(vec![SeccompCondition::new(2, SeccompCmpArgLen::Dword, is_data, 0)?])?;
        rules.insert(call, vec![rule]);
    }
    let machine = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, machine)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}
