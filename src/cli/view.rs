//! `shardfs view`: a container in the browser.

use std::{net::TcpListener, path::PathBuf, process::Command, sync::Arc};

use anyhow::Context;
use clap::Args;

use super::{ViewOptions, log_to_stderr, number_key, serve};
use crate::{
    serve::Site,
    vfs::{self, Vfs},
};

/// Look at a container, or a folder of them, in the browser
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A container, or a folder
    path: PathBuf,

    #[command(flatten)]
    view: ViewOptions,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    log_to_stderr("warn");
    let options = vfs::Options { number_key: number_key::kept(), ..arguments.view.checked() };
    let vfs = Arc::new(Vfs::open(&arguments.path, options)?);
    let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
    let link = format!("http://{}/", listener.local_addr().context("the address that is listened on")?);
    println!("{link}");
    // Where there is no browser the link is enough.
    let _ = Command::new("xdg-open").arg(&link).spawn();
    let site = Site::new(vfs);
    crate::serve::serve(&site, listener, serve::end()).context("serving")
}
