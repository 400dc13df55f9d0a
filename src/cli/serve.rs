//! `shardfs serve`: the tree over HTTP and WebDAV.

use std::{
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::Arc,
};

use anyhow::Context;
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{ViewOptions, escape, log_to_stderr, number_key};
use crate::{
    serve::Site,
    vfs::{self, Vfs},
};

/// Serve what a mount would show to browsers and other programs, over HTTP and WebDAV
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shardfs serve data/
  curl -r 0-127 http://127.0.0.1:8080/files/ep_001.wshard/signal/joint_pos.npy | xxd

Exit codes: 0 ended by SIGINT or SIGTERM, 1 it could not be served, 2 a wrong command line.")]
pub(super) struct Arguments {
    /// A folder, or one container
    source: PathBuf,

    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    #[command(flatten)]
    view: ViewOptions,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("warn");
    let options = vfs::Options { number_key: number_key::kept(), ..arguments.view.checked() };
    let vfs = Arc::new(Vfs::open(&arguments.source, options)?);
    let listener = TcpListener::bind(arguments.listen).with_context(|| arguments.listen.to_string())?;
    let address = listener.local_addr().context("the address that is listened on")?;
    println!("{} is served at http://{address}/", escape::path(&arguments.source));
    let site = Site::new(vfs);
    crate::serve::serve(&site, listener, end()).context("serving")
}

/// Ends with SIGINT or SIGTERM.
pub(super) async fn end() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]) else {
        return std::future::pending().await;
    };
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = sender.send(());
        }
    });
    let _ = receiver.await;
}
