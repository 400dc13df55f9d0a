//! `shardfs serve`: the tree over HTTP and WebDAV.

use std::{
    fs::File,
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use clap::Args;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::mount::raise_descriptor_limit;
use crate::{
    cache::limit_heap,
    cli::{ViewOptions, escape, log_to_stderr, running, stdout, system::number_key},
    serve::{self, Access, Site, Tls},
    vfs::{self, Vfs},
};

/// Shortest token in a file, in bytes. 128 bits as hexadecimal digits have twice as many.
const LEAST_TOKEN: usize = 16;
/// Longest token in a file, in bytes.
const MOST_TOKEN: u64 = 4096;
/// Longest file with certificates, or with a key, in bytes.
const MOST_PEM: u64 = 1 << 20;

/// Serve what a mount would show to browsers and other programs, over HTTP and WebDAV
///
/// Clients see what you may read below SOURCE. By default only this machine can connect. Binding to a non-loopback
/// address requires a token, which is printed, or --public.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs serve data/
  shardfs serve data/ --listen 0.0.0.0:8080
  shardfs serve data/ --listen data.example.org:8443 --tls-cert fullchain.pem --tls-key privkey.pem
  curl -r 0-127 http://127.0.0.1:8080/files/ep_001.wshard/signal/joint_pos.npy | xxd
  curl -H 'Accept: application/json' http://127.0.0.1:8080/files/ep_001.wshard/signal/

  /files/PATH   every file and folder as a mount shows it; folders as pages, or as JSON
  /dav/         the same for clients of WebDAV: Finder, Explorer, davfs2, rclone

Exit codes: 0 ended by SIGINT or SIGTERM, 1 it could not be served, 2 a wrong command line.")]
pub(in crate::cli) struct Arguments {
    /// A folder, a container, or a URL
    source: PathBuf,

    /// Address and port to listen on; port 0 means any free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: String,

    /// Serve only clients that send a token; a new one is made and printed as part of the link
    #[arg(long)]
    token: bool,

    /// Serve only clients that send the token in this file, of at least 16 characters
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Serve every client that can connect, without a token; .shardfs is not shown
    #[arg(long, conflicts_with_all = ["token", "token_file"])]
    public: bool,

    /// Speak HTTPS, with the certificate in this file and those that lead to one that clients trust (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The key of the certificate (PEM, without a password)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Also accept this host name in requests, besides numbers, localhost and this machine's own name; may be given
    /// several times
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,

    /// Show containers as the files that they are, and nothing inside them, for clients that walk through everything
    #[arg(long)]
    flat: bool,

    #[command(flatten)]
    view: ViewOptions,
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("warn");
    let given = arguments.token_file.as_deref().map(token_in).transpose()?;
    let tls = arguments.tls_cert.as_deref().zip(arguments.tls_key.as_deref());
    let tls = tls.map(|(certificate, key)| tls_of(certificate, key)).transpose()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let listener = TcpListener::bind(&arguments.listen).with_context(|| {
        let shown = escape::escaped(&arguments.listen);
        match arguments.listen.parse::<u16>() {
            Ok(port) => format!("--listen {shown}: an address is missing; write --listen 127.0.0.1:{port}"),
            Err(_) => format!("--listen {shown}"),
        }
    })?;
    let address = listener.local_addr().context("the address that is listened on")?;
    let is_wanted = arguments.token || !arguments.public && !is_loopback(address.ip());
    let token = given.clone().or_else(|| is_wanted.then(serve::random_hex));

    let listened = arguments.listen.rsplit_once(':').map(|(host, _)| host.to_owned());
    let mut access = Access::new(arguments.allow_host.iter().cloned().chain(listened));
    if let Some(token) = &token {
        access = access.with_token(token, address, tls.is_some());
    }
    let mut options = vfs::Options { control: !arguments.public, ..options(&arguments.view) };
    if arguments.flat {
        if arguments.source.is_file() {
            bail!("{}: --flat shows no container as a folder; leave it out", arguments.source.display());
        }
        options.formats = &[];
    }
    let site = open(&arguments.source, options, access, tls)?;
    let signals = signals()?;
    let mut out = stdout();
    writeln!(out, "{} is served at {}", escape::path(&arguments.source), link(scheme, address, ""))?;
    match (&given, &token) {
        (Some(_), _) => writeln!(out, "with the token of --token-file")?,
        (None, Some(token)) => writeln!(out, "open {}", link(scheme, address, &format!("?token={token}")))?,
        (None, None) if arguments.public => writeln!(out, "to every client that reaches this address")?,
        (None, None) => {}
    }
    running::notify("READY=1");
    until_signal(&site, listener, signals)
}

/// What a server shows, as the options say.
pub(in crate::cli) fn options(view: &ViewOptions) -> vfs::Options {
    raise_descriptor_limit();
    limit_heap();
    // Entity tags are made with it: kept, so that what a client has is still the same after a restart.
    vfs::Options { number_key: number_key::kept(), ..view.checked() }
}

/// Opens what is served.
///
/// # Errors
/// When it is not there, or can't be listed.
pub(in crate::cli) fn open(
    source: &Path,
    options: vfs::Options,
    access: Access,
    tls: Option<Tls>,
) -> anyhow::Result<Arc<Site>> {
    let vfs = Arc::new(Vfs::open(source, options)?);
    crate::cli::commands::mount::check_source(&vfs)?;
    Ok(Site::new(vfs, access, tls))
}

/// The signals that end a server, from before its address is told on.
///
/// # Errors
/// When they cannot be handled.
pub(in crate::cli) fn signals() -> anyhow::Result<Signals> {
    Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals")
}

/// Serves until a signal says that it is enough.
///
/// # Errors
/// When the server can't be started.
pub(in crate::cli) fn until_signal(
    site: &Arc<Site>,
    listener: TcpListener,
    mut signals: Signals,
) -> anyhow::Result<()> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = sender.send(());
        }
    });
    let ended = async {
        let _ = receiver.await;
    };
    let served = serve::serve(site, listener, ended).context("serving");
    site.volume.vfs().finish();
    served
}

/// The address as people type it. What listens everywhere is reached by this machine's name.
pub(in crate::cli) fn link(scheme: &str, address: SocketAddr, rest: &str) -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match address.ip() {
        ip if ip.is_unspecified() && !name.is_empty() => format!("{scheme}://{name}:{}/{rest}", address.port()),
        _ => format!("{scheme}://{address}/{rest}"),
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// The certificate and key that connections are encrypted with.
fn tls_of(certificate: &Path, key: &Path) -> anyhow::Result<Tls> {
    let read = |path: &Path| {
        let mut bytes = Vec::new();
        File::open(path).and_then(|file| file.take(MOST_PEM).read_to_end(&mut bytes)).map(|_| bytes)
    };
    let of_certificate = || format!("--tls-cert {}", escape::path(certificate));
    let certificates = read(certificate).and_then(|pem| Tls::certificates(&pem)).with_context(of_certificate)?;
    if let Some(why) = certificates.first().and_then(Tls::untimely) {
        log::warn!("{}: the certificate {why}", of_certificate());
    }
    warn_of_readers(key, "key");
    let of_key = || format!("--tls-key {}", escape::path(key));
    read(key).and_then(|pem| Tls::new(certificates, &pem)).with_context(of_key)
}

/// Warns if other users may read a secret in a file.
fn warn_of_readers(path: &Path, what: &str) {
    if path.metadata().is_ok_and(|found| found.mode() & 0o077 != 0) {
        log::warn!("{}: other users may read the {what}", escape::path(path));
    }
}

/// The token that a file holds, without what stands around it.
fn token_in(path: &Path) -> anyhow::Result<String> {
    let shown = || escape::path(path);
    let file = File::open(path).with_context(shown)?;
    warn_of_readers(path, "token");
    let mut text = String::new();
    file.take(MOST_TOKEN).read_to_string(&mut text).with_context(shown)?;
    let token = text.trim();
    if token.len() < LEAST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!(
            "{}: not a token: {LEAST_TOKEN} characters or more, without spaces; `openssl rand -hex 16` makes one",
            shown()
        );
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_only_this_machine_reaches() {
        let is_loopback = |ip: &str| crate::cli::commands::serve::is_loopback(ip.parse().unwrap());
        assert!(["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"].into_iter().all(is_loopback));
        assert!(!["0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1"].into_iter().any(is_loopback));
    }

    #[test]
    fn tokens_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let place = folder.path().join("token");
            std::fs::write(&place, text).unwrap();
            token_in(&place)
        };
        assert_eq!(read("  0123456789abcdef\n").unwrap(), "0123456789abcdef");
        for wrong in ["", "short", "0123456789 abcdef", "0123456789abcde\u{e9}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
