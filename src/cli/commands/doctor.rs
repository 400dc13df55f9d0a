//! `shardfs doctor`: whether this machine can mount, and what would make it.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::bail;
use clap::Args;
use rustix::{
    fs::{Access, access},
    process::{Resource, getrlimit},
};
use serde::Serialize;
use serde_json::json;

use super::{formats, status};
use crate::{
    cache::DiskTierOptions,
    cli::{ColorOption, RemoteOptions, buffered, color, escape, mounts::KIND, paint, remote, spill::default_options},
    disk::{Disk, Limits},
    format::mp4::VideoCodec,
    fuse::{has_sys_admin, may_pass_files},
    tree::known_formats,
    video,
};

/// Folders that are on every PATH.
const PLACES: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];

/// Check whether this machine can mount
///
/// Checks everything that mounting needs or that makes it faster, and says what is wrong and how to fix it. It changes
/// nothing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs doctor
  shardfs doctor s3://bucket/data
  shardfs doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .remedy'

Exit codes: 0 this user can mount here (perhaps with warnings), 1 this user cannot.")]
pub(in crate::cli) struct Arguments {
    /// Print JSON: `can_mount`, and `checks` with name, state, message and remedy
    #[arg(long)]
    json: bool,

    /// Also check whether this bucket or folder of a web server can be listed and read: s3://bucket/prefix
    url: Option<PathBuf>,

    #[command(flatten)]
    color: ColorOption,

    #[command(flatten)]
    remote: RemoteOptions,
}

/// States of checks.
const OK: &str = "ok";
/// Mounting works, but could be better.
const WARNING: &str = "warning";
/// Mounting cannot work.
const PROBLEM: &str = "problem";

/// Result of a check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: &'static str,
    message: String,
    remedy: Option<String>,
}

fn ok(name: &'static str, message: impl Into<String>) -> Check {
    Check { name, state: OK, message: message.into(), remedy: None }
}

fn warning(name: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check { name, state: WARNING, message: message.into(), remedy: Some(remedy.into()) }
}

fn problem(name: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check { name, state: PROBLEM, message: message.into(), remedy: Some(remedy.into()) }
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut checks = checks();
    if let Some(url) = &arguments.url {
        checks.extend(remote::check(url, &arguments.remote)?.into_iter().map(|(name, found)| match found {
            Ok(message) => ok(name, message),
            Err(message) if name == "disk cache" => warning(name, message, "see --disk-cache; mounts go on without it"),
            Err(message) => problem(name, message, "see docs/TROUBLESHOOTING.md, Buckets and web servers"),
        }));
    }
    let can_mount = checks.iter().all(|check| check.state != PROBLEM);
    let (mut out, is_terminal) = buffered();
    let is_coloured = arguments.color.is_on(is_terminal);
    if arguments.json {
        escape::write_json(&mut out, &json!({"can_mount": can_mount, "checks": checks}))?;
    } else {
        for Check { name, state, message, remedy } in &checks {
            let colour = match *state {
                OK => color::GOOD,
                WARNING => color::WARNING,
                _ => color::BAD,
            };
            let word = paint(is_coloured, colour, &format!("{state:8}"));
            writeln!(out, "{word} {name:16} {}", escape::escaped(message))?;
            if let Some(remedy) = remedy {
                writeln!(out, "{:8} {:16} -> {}", "", "", escape::escaped(remedy))?;
            }
        }
    }
    out.flush()?;
    if can_mount { Ok(()) } else { bail!("mounting can't work here until the problems above are solved") }
}

fn checks() -> Vec<Check> {
    let root = rustix::process::geteuid().is_root();
    let admin = has_sys_admin();
    let kernel = kernel();
    let mut checks =
        vec![kernel_check(&kernel), device(), admin_check(root, admin), fusermount(root), others(root), descriptors()];
    checks.extend([maps(), passthrough(&kernel, may_pass_files()), decoded_blocks(), indexers()]);
    checks.extend([VideoCodec::Av1, VideoCodec::H264].map(frames));
    checks.extend(dead_mounts());
    checks.extend(known_formats().iter().map(|format| {
        let shown = if format.is_default { "" } else { "; not shown unless --formats=+ says so" };
        ok("format", format!("{} ({}): {}{shown}", format.name, formats::suffixes(format), format.summary))
    }));
    checks
}

/// Tries the decoder of a codec.
fn frames(codec: VideoCodec) -> Check {
    match video::check_codec(codec) {
        Ok(()) => ok("videos", format!("frames of {codec} are decoded in a confined process")),
        Err(reason) => {
            let remedy = match codec {
                VideoCodec::H264 => "install ffmpeg; until then the videos are there, and their frames are left out",
                _ => "the videos are there, and their frames are left out",
            };
            warning("videos", reason.to_string(), remedy)
        }
    }
}

/// Returns the version of the kernel, as text.
fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Returns such a version as numbers.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn kernel_check(release: &str) -> Check {
    if version(release) >= (5, 1) {
        ok("kernel", release)
    } else {
        let message = format!("{release} asks about each file that is opened, which costs time");
        warning("kernel", message, "use Linux 5.1 or newer")
    }
}

fn device() -> Check {
    let path = "/dev/fuse";
    match File::options().read(true).write(true).open(path) {
        Ok(_) => ok("/dev/fuse", "is there and can be opened"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => problem(
            "/dev/fuse",
            "is missing",
            "load the module with 'modprobe fuse', or start the container with --device /dev/fuse",
        ),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            problem("/dev/fuse", "may not be opened by this user", "as root: chmod 666 /dev/fuse")
        }
        Err(error) => problem("/dev/fuse", format!("can't be opened: {error}"), "as root: modprobe fuse"),
    }
}

/// Checks the folder of `--spill auto`.
fn decoded_blocks() -> Check {
    const NAME: &str = "decoded blocks";
    let DiskTierOptions { folder, size, .. } = default_options();
    let shown = folder.display();
    match Disk::existing(&folder, Limits::new(&folder, size)).and_then(|disk| Ok((disk.is_local(), disk.usage()?))) {
        Ok((true, usage)) => ok(NAME, format!("{} blobs, {} in {shown}", usage.blobs, status::bytes(usage.bytes))),
        Ok((false, _)) => warning(
            NAME,
            format!("{shown} is not on a disk of this machine"),
            "give --spill a folder on a local disk: reading from a server is no faster than decoding",
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_writable(&folder) => {
            ok(NAME, format!("--spill auto would keep up to {} in {shown}", status::bytes(size)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => warning(
            NAME,
            format!("{shown} can't be made"),
            "name a folder where this user may write with --spill, or set XDG_CACHE_HOME",
        ),
        Err(error) => warning(
            NAME,
            format!("{shown} can't be used: {error}"),
            "give it to this user with mode 0700, or name another folder with --spill",
        ),
    }
}

/// Returns whether a folder that is not there can be made in the nearest one above it that is.
fn is_writable(folder: &Path) -> bool {
    let above = folder.ancestors().find(|above| above.exists());
    above.is_some_and(|above| access(above, Access::WRITE_OK | Access::EXEC_OK).is_ok())
}

fn admin_check(root: bool, admin: bool) -> Check {
    match (root, admin) {
        (_, true) => ok("CAP_SYS_ADMIN", "is there"),
        (false, false) => ok("CAP_SYS_ADMIN", "missing, and not needed because fusermount3 mounts"),
        (true, false) => problem(
            "CAP_SYS_ADMIN",
            "root has not got it here, so nothing can be mounted",
            "start the container with --cap-add SYS_ADMIN --device /dev/fuse",
        ),
    }
}

fn fusermount(root: bool) -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(PLACES.map(PathBuf::from));
    let found = places.map(|place| place.join("fusermount3")).find_map(|file| Some((fs::metadata(&file).ok()?, file)));
    let name = "fusermount3";
    match found {
        Some((meta, file)) if meta.permissions().mode() & 0o4000 != 0 => {
            ok(name, format!("{} is there and setuid", file.display()))
        }
        Some((_, file)) if root => ok(name, format!("{} is not setuid; root needs it not", file.display())),
        Some((_, file)) => {
            let remedy = format!("as root: chmod u+s {}", file.display());
            problem(name, format!("{} is not setuid, so it can't mount for this user", file.display()), remedy)
        }
        None if root => warning(name, "is missing; only root can mount", "install fuse3"),
        None => problem(name, "is missing, and only root can mount without it", "install fuse3"),
    }
}

fn others(root: bool) -> Check {
    let name = "user_allow_other";
    if crate::cli::commands::mount::may_let_others_in() {
        ok(name, "is set: mounts may use --allow-other")
    } else if root {
        ok(name, "is not set; root may use --allow-other all the same")
    } else {
        let message = "is not set: mounts of this user can't use --allow-other";
        warning(name, message, "as root: echo user_allow_other >> /etc/fuse.conf")
    }
}

fn descriptors() -> Check {
    let limit = getrlimit(Resource::Nofile);
    let name = "open files";
    // A thousand containers that are kept open, and what else needs descriptors.
    let wanted = 1024 * crate::limits::DESCRIPTORS_PART;
    match limit.maximum {
        Some(most) if most < wanted => {
            let message = format!("at most {most} in a process; containers will be opened repeatedly");
            warning(name, message, format!("raise the limit: ulimit -Hn {wanted}"))
        }
        most => ok(name, format!("at most {} in a process", most.map_or("any number".into(), |most| most.to_string()))),
    }
}

fn maps() -> Check {
    let name = "max_map_count";
    let count = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let remedy = "as root: sysctl -w vm.max_map_count=65530";
    match count.trim().parse::<u64>() {
        Ok(count) if count < 4096 => warning(name, format!("{count} maps in a process are few"), remedy),
        Ok(count) => ok(name, format!("{count} maps in a process")),
        Err(_) => ok(name, "not known"),
    }
}

/// Returns whether a mount by this user can let the kernel read files by itself.
pub(in crate::cli) fn has_passthrough() -> bool {
    passthrough(&kernel(), may_pass_files()).state == OK
}

/// Checks for passthrough: reads that the kernel answers by itself from a file of ours (Linux 6.9,
/// `CONFIG_FUSE_PASSTHROUGH`).
fn passthrough(release: &str, may_pass_files: bool) -> Check {
    let name = "passthrough";
    let config = fs::read_to_string(format!("/boot/config-{release}")).unwrap_or_default();
    if version(release) < (6, 9) {
        warning(name, format!("Linux {release} has not got it"), "use Linux 6.9 or newer")
    } else if config.contains("# CONFIG_FUSE_PASSTHROUGH is not set") {
        warning(name, "this kernel was built without it", "use a kernel with CONFIG_FUSE_PASSTHROUGH=y")
    } else if may_pass_files {
        ok(name, "the kernel is new enough and this user may use it")
    } else {
        warning(
            name,
            "needs CAP_SYS_ADMIN outside of a user namespace",
            "mount as root if large files are read repeatedly",
        )
    }
}

/// Checks that updatedb skips mounts. Otherwise it would read every folder of every container each night.
fn indexers() -> Check {
    let name = "updatedb";
    let Ok(config) = fs::read_to_string("/etc/updatedb.conf") else {
        return ok(name, "is not installed, or has no configuration");
    };
    if prunes(&config) {
        ok(name, format!("leaves {KIND} out"))
    } else {
        let remedy = format!("add {KIND} to PRUNEFS in /etc/updatedb.conf");
        warning(name, "goes through mounts of shardfs, each night", remedy)
    }
}

fn prunes(config: &str) -> bool {
    let lines = config.lines().map(str::trim).filter_map(|line| line.strip_prefix("PRUNEFS"));
    let lists = lines.filter_map(|line| line.trim_start().strip_prefix('='));
    lists.flat_map(|list| list.trim_matches([' ', '"']).split_whitespace()).any(|kind| kind.eq_ignore_ascii_case(KIND))
}

fn dead_mounts() -> Vec<Check> {
    let name = "mounts";
    match status::reports(|_| true) {
        Ok(reports) => {
            let lost = reports.iter().filter_map(|report| {
                let lost = report.lost()?;
                let (message, remedy) = lost.split_once("; ").unwrap_or((&lost, ""));
                Some(warning(name, format!("{} {message}", report.mount.at.display()), remedy))
            });
            let lost: Vec<Check> = lost.collect();
            if lost.is_empty() { vec![ok(name, format!("{}, all answer", reports.len()))] } else { lost }
        }
        Err(error) => vec![warning(name, format!("{error:#}"), "is /proc mounted?")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_kernels() {
        assert_eq!(version("6.18.44-fc-v595"), (6, 18));
        assert_eq!(version("5.4"), (5, 4));
        assert_eq!(version("odd"), (0, 0));
        assert!(version("6.10.1") > version("6.9.99"));
    }

    #[test]
    fn lists_of_updatedb() {
        assert!(prunes("PRUNE_BIND_MOUNTS=\"yes\"\nPRUNEFS=\"NFS afs fuse.shardfs fuse.sshfs\"\n"));
        assert!(prunes("PRUNEFS = \"fuse.ShardFS\""));
        assert!(!prunes("# PRUNEFS=\"fuse.shardfs\"\nPRUNEFS=\"NFS fuse.shardfs2\""));
        assert!(!prunes("PRUNEPATHS=\"/fuse.shardfs\""));
    }
}
