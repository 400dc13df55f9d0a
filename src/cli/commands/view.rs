//! `shardfs view`: a container in the browser.

use std::{io::Write, net::TcpListener, path::PathBuf, process::Stdio};

use anyhow::{Context, anyhow};
use clap::Args;

use super::serve;
use crate::{
    cli::{ViewOptions, options::place, stdout},
    programs,
    serve::{Access, encode},
};

/// Look at a container in the browser
///
/// Serves it on a free port of this machine and opens the browser. Without a browser here, open the printed link in
/// another one. Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs view data/ep_001.wshard
  shardfs view data/
  shardfs view data/demo.kdb/episodes/0

The link works on this machine only. From another machine, run ssh -L 8080:127.0.0.1:PORT and open
http://127.0.0.1:8080/

Exit codes: 0 ended by Ctrl-C, 1 it could not be served, 2 a wrong command line.")]
pub(in crate::cli) struct Arguments {
    /// A container, a folder, or a path inside a container
    path: PathBuf,

    /// Print the link, and do not open a browser
    #[arg(long)]
    no_browser: bool,

    #[command(flatten)]
    view: ViewOptions,
}

pub(in crate::cli) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    crate::cli::log_to_stderr("warn");
    let (source, inside) = place::split(&arguments.path, &arguments.view.checked())?;
    let site = serve::open(&source, serve::options(&arguments.view), Access::new([]), None)?;
    let mut entry = site.volume.root()?;
    for name in &inside {
        let missing = || anyhow!("{}: no '{}' there", arguments.path.display(), name.display());
        entry = entry.child(name)?.ok_or_else(missing)?.or_behind()?;
    }
    let path = encode(&inside.iter().collect::<PathBuf>());
    let page = if entry.is_folder() { format!("files/{path}") } else { format!("-/view/{path}") };
    let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
    let link = serve::link("http", listener.local_addr().context("the address that is listened on")?, &page);
    let signals = serve::signals()?;
    writeln!(stdout(), "{link}")?;
    if !arguments.no_browser {
        open_browser(&link);
    }
    serve::until_signal(&site, listener, signals)
}

/// Opens a link in the user's browser, if there is one. The connection waits until the server answers.
fn open_browser(link: &str) {
    // Without a desktop, xdg-open would start a text browser in the terminal.
    if !["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    let opened = programs::command("xdg-open").and_then(|mut program| {
        program.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    });
    match opened {
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => log::info!("xdg-open: {error}"),
    }
}
