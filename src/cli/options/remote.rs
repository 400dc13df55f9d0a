//! URLs on the command line, and the options for their servers.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, IsTerminal},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use clap::Args;
use parking_lot::Mutex;

use crate::{
    cli::output::{escape, stderr::say},
    disk::usual_folder,
    store::remote::{self, Address, Detect, Location, Options, Purpose, URLS, is_url},
    tree,
};

/// Options of every command that takes a URL.
#[derive(Debug, Args)]
#[command(next_help_heading = "Buckets and web servers")]
pub(in crate::cli) struct RemoteOptions {
    /// Profile in ~/.aws/config and ~/.aws/credentials [default: AWS_PROFILE, or the keys of the environment]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    /// Send requests without credentials, as public buckets permit
    #[arg(long, conflicts_with = "profile")]
    no_sign_request: bool,

    /// Address of a server other than the cloud's own, such as http://127.0.0.1:8333 [default: AWS_ENDPOINT_URL]
    #[arg(long, value_name = "URL")]
    endpoint_url: Option<Address>,

    /// Region of the bucket [default: AWS_REGION, or what the server says]
    #[arg(long, value_name = "NAME")]
    region: Option<String>,

    /// File of certificates (PEM) to trust in addition to the system's [default: AWS_CA_BUNDLE]
    #[arg(long, value_name = "FILE")]
    ca_bundle: Option<PathBuf>,

    /// Agree to pay for the requests, as some buckets require
    #[arg(long)]
    request_payer: bool,

    /// How long a request is tried before it fails
    #[arg(long, value_name = "TIME", value_parser = timeout, default_value = "30s")]
    timeout: Duration,

    /// How often a request is tried again
    #[arg(long, value_name = "N", default_value_t = 10)]
    retries: u32,

    /// How long names and sizes are trusted before the server is asked again; `shardfs refresh` asks at once
    #[arg(long, value_name = "TIME", value_parser = crate::cli::duration, default_value = "10s")]
    dir_ttl: Duration,

    /// How containers are distinguished from ordinary objects
    #[arg(long, value_enum, default_value_t)]
    detect: Detect,

    /// Folder in which bytes of objects are kept, readable only by this user [default: ~/.cache/shardfs/blocks]
    #[arg(long, value_name = "DIR", value_parser = crate::cli::local())]
    disk_cache: Option<PathBuf>,

    /// Largest size of that folder, in bytes or with K, M, G or T [default: a tenth of the disk, at most 50G]
    #[arg(long, value_name = "SIZE", value_parser = crate::cli::size)]
    disk_cache_size: Option<u64>,

    /// Do not keep bytes of objects on disk
    #[arg(long, conflicts_with_all = ["disk_cache", "disk_cache_size"])]
    no_disk_cache: bool,
}

impl RemoteOptions {
    pub(in crate::cli) fn checked(&self) -> Options {
        Options {
            profile: self.profile.clone(),
            no_sign_request: self.no_sign_request,
            endpoint_url: self.endpoint_url.clone(),
            region: self.region.clone(),
            ca_bundle: self.ca_bundle.clone(),
            request_payer: self.request_payer,
            timeout: self.timeout,
            retries: self.retries,
            dir_ttl: self.dir_ttl,
            detect: self.detect,
            disk_cache: match self.no_disk_cache {
                true => None,
                false => match &self.disk_cache {
                    Some(folder) => Some(std::path::absolute(folder).unwrap_or_else(|_| folder.clone())),
                    None => usual_folder(),
                },
            },
            requires_disk_cache: self.disk_cache.is_some() && !self.no_disk_cache,
            disk_cache_size: self.disk_cache_size,
            opened_for: Purpose::default(),
            on_trouble: io::stderr().is_terminal().then_some(tell),
        }
    }
}

/// Tells the person at the terminal that a server does not answer, once in ten seconds. A process that has left its
/// terminal tells nothing.
fn tell(trouble: &str) {
    const PAUSE: Duration = Duration::from_secs(10);
    static TOLD: Mutex<Option<Instant>> = Mutex::new(None);
    let mut told = TOLD.lock();
    if io::stderr().is_terminal() && told.is_none_or(|then| then.elapsed() >= PAUSE) {
        say(&format!("shardfs: {}", escape::escaped(trouble)));
        *told = Some(Instant::now());
    }
}

/// Returns the usual folder of the disk cache and its largest size; `None` if another one or none is used.
pub(in crate::cli) fn usual_disk_cache(options: &Options) -> Option<(PathBuf, u64)> {
    let folder = options.disk_cache.as_ref().filter(|folder| Some(*folder) == usual_folder().as_ref())?;
    Some((folder.clone(), options.disk_cache_limit()))
}

/// Returns whether no mount has used this folder of a disk cache before, and notes beside it that one has. Other
/// commands use it without saying so.
pub(in crate::cli) fn is_first_mount(folder: &Path) -> bool {
    File::create_new(folder.with_file_name("mounted")).is_ok()
}

/// This command line again without the secrets of its URLs, which go into the environment instead: other users see the
/// arguments of a process, and not its environment. `None` where there are none.
pub(in crate::cli) fn without_secrets(line: &[OsString]) -> Option<Command> {
    let mut urls = Vec::new();
    let mut hidden = Vec::new();
    for argument in line {
        let location = Location::parse(Path::new(argument)).and_then(Result::ok).filter(Location::has_secrets);
        // The address of an endpoint may hold none: without it, nobody would tell the user.
        let is_endpoint = hidden.last().is_some_and(|before| before == "--endpoint-url");
        hidden.push(match location.filter(|_| !is_endpoint) {
            Some(location) => {
                urls.push(argument.clone());
                location.shown().into()
            }
            None => argument.clone(),
        });
    }
    if urls.is_empty() {
        return None;
    }
    let mut again = Command::new(std::env::current_exe().ok()?);
    if let Some(name) = hidden.first() {
        again.arg0(name);
    }
    again.args(hidden.iter().skip(1)).env(URLS, urls.join(OsStr::new("\n")));
    Some(again)
}

/// Whether a URL can be listed and read.
///
/// # Errors
/// That it is no URL.
pub(in crate::cli) fn check(url: &Path, options: &RemoteOptions) -> anyhow::Result<Vec<remote::Step>> {
    let location =
        Location::parse(url).ok_or_else(|| anyhow::anyhow!("{}: not a URL, as s3://bucket is", url.display()))?;
    let location = remote::with_secrets(location.map_err(|why| anyhow::anyhow!("{why}"))?);
    let is_container_name = Box::new(|name: &OsStr| tree::is_container_name(tree::known_formats(), name));
    Ok(remote::check(&location, &options.checked(), is_container_name))
}

fn timeout(text: &str) -> Result<Duration, String> {
    let time = crate::cli::duration(text)?;
    if time.is_zero() { Err("has to be longer".into()) } else { Ok(time) }
}

/// The part of a URL that is opened as SOURCE, and the names after it: it ends with the first name that is a
/// container's.
pub(in crate::cli) fn split(path: &Path, formats: tree::Formats) -> (PathBuf, Vec<OsString>) {
    let bytes = path.as_os_str().as_bytes();
    let begin = bytes.windows(3).position(|part| part == b"://").map_or(0, |at| at + 3);
    let mut from = begin;
    while let Some(end) = bytes[from..].iter().position(|&byte| byte == b'/').map(|at| from + at) {
        let name = OsString::from_vec(bytes[from..end].to_vec());
        if from > begin && tree::is_container_name(formats, &name) {
            let inside = bytes[end..].split(|&byte| byte == b'/').filter(|name| !name.is_empty());
            let inside = inside.map(|name| OsString::from_vec(name.to_vec())).collect();
            return (OsString::from_vec(bytes[..end].to_vec()).into(), inside);
        }
        from = end + 1;
    }
    (path.to_path_buf(), Vec::new())
}

/// The folder that holds what a path or URL names, and the name that it has there. `None` for a whole store, and for the root.
pub(in crate::cli) fn parent(url: &Path) -> Option<(PathBuf, OsString)> {
    match is_url(url) {
        true => remote::parent(url),
        false => Some((url.parent()?.into(), url.file_name()?.into())),
    }
}

/// The path or URL, as the user would type it, of what a folder shows by a name. Inside containers names stay as they are.
pub(in crate::cli) fn join(folder: &Path, is_inside: bool, name: &OsStr) -> PathBuf {
    let url = if is_inside { None } else { remote::child(folder, name) };
    url.unwrap_or_else(|| folder.join(name))
}

/// As [`join`], of what lies below a folder and in no container.
pub(in crate::cli) fn below(folder: &Path, path: &Path) -> PathBuf {
    path.iter().fold(folder.to_owned(), |folder, name| join(&folder, false, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_behind_the_container() {
        let split = |url: &str| {
            let (host, inside) = split(Path::new(url), &tree::FORMATS);
            (host.display().to_string(), inside.len())
        };
        let found = split("s3://b.kdb/a//ep.wshard/signal/x.npy");
        assert_eq!(found, ("s3://b.kdb/a//ep.wshard".into(), 2));
        assert_eq!(split("s3://b/a/ep.wshard"), ("s3://b/a/ep.wshard".into(), 0));
        assert_eq!(split("s3://b/a/ep.wshard/"), ("s3://b/a/ep.wshard".into(), 0));
        assert_eq!(split("s3://b"), ("s3://b".into(), 0));
        assert_eq!(parent(Path::new("/b/a")), Some(("/b".into(), "a".into())));
    }
}
