//! Checks whether a URL can be listed and read, for `shardfs doctor`.

use bytes::Bytes;

use super::{
    IsContainerName, Location, Options, RemoteStore,
    backends::backend::{Node, State},
    http::client::wait,
    object::{Fetch, FetchError},
    unusable,
};
use crate::{
    cache::{Cache, Verify, default_budget},
    disk,
};

/// Result of one step: what was found, or what is wrong.
pub(crate) type Step = (&'static str, Result<String, String>);

/// Checks whether bytes of objects can be kept on disk.
fn disk_cache(options: &Options) -> Result<String, String> {
    let Some(folder) = &options.disk_cache else { return Ok("none is used".into()) };
    let limits = disk::Limits::new(folder, options.disk_cache_limit());
    let used = disk::Disk::open(folder, limits).and_then(|disk| disk.usage());
    let used = used.map_err(|error| unusable(folder, &error))?;
    let most = limits.size;
    Ok(format!("{}: {} blobs, {} of at most {most} bytes", folder.display(), used.blobs, used.bytes))
}

/// Returns the key of the folder to list: what the URL names, or the folder of the object that it names.
async fn folder_of(store: &RemoteStore, location: &Location) -> Result<Vec<u8>, FetchError> {
    let key = &*location.key;
    let found = match location.split() {
        Some((folder, _)) => store.look(key, false).await?.map(|node| match node {
            Node::Object(_) => folder.to_vec(),
            Node::Folder => [key, b"/"].concat(),
        }),
        None if key.is_empty() || location.is_web() => Some(key.to_vec()),
        None => store.has_keys(key).await?.then(|| key.to_vec()),
    };
    found.ok_or(FetchError::Gone)
}

/// Lists what a URL names, and reads a byte of the first object.
pub(crate) fn check(location: &Location, options: &Options, is_container_name: IsContainerName) -> Vec<Step> {
    let cache = Cache::new(default_budget(), Verify::Lazy);
    // A folder that cannot be used is a step of its own.
    let server = Options { requires_disk_cache: false, ..options.clone() };
    let store = match RemoteStore::new(location, &server, &cache, is_container_name) {
        Ok(store) => store,
        Err(error) => return vec![("server", Err(error.to_string()))],
    };
    let mut steps = vec![("server", Ok(store.client.store.to_string())), ("disk cache", disk_cache(options))];
    let mut folder = Vec::new();
    let page = wait(async {
        store.learn().await?;
        folder = folder_of(&store, location).await?;
        store.page(&folder, 10, None).await
    });
    let wrong = |error: FetchError| match error {
        FetchError::Gone => "there is no such bucket, folder or object".to_owned(),
        error => error.to_string(),
    };
    let is_listed = page.is_ok();
    let first = match page {
        Ok(page) => {
            let (folders, objects): (Vec<_>, Vec<_>) =
                page.found.into_iter().partition(|found| found.node == Node::Folder);
            let found = format!("{} objects and {} folders on the first page", objects.len(), folders.len());
            steps.push(("list", Ok(found)));
            objects.into_iter().map(|object| object.key).find(|key| !key.ends_with(b"/"))
        }
        Err(error) => {
            steps.push(("list", Err(wrong(error))));
            None
        }
    };
    let named = location.split().filter(|_| !folder.starts_with(&location.key)).map(|_| location.key.clone());
    // Reads the named object, or the first one listed if the URL names a folder.
    let Some(key) = named.into_iter().chain(first).find(|key| wait(store.head(key)).is_ok()) else {
        if is_listed {
            steps.push(("read", Ok("no object was found here to try it on".into())));
        }
        return steps;
    };
    let read = wait(async {
        let state: State = store.head(&key).await?;
        let end = state.size.unwrap_or(0).min(1);
        let object = store.fetch(&key, &state);
        let mut sink = |_: Bytes| {};
        object.fetch(0..end, &mut sink).await?;
        Ok(format!("{} of {} bytes", object.id.key, object.id.size))
    });
    steps.push(("read", read.map_err(wrong)));
    steps
}
