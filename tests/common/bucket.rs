//! A bucket in this process: the objects are the files of a folder, as S3 lists and gives them; and as a web server that
//! lists folders in nginx's JSON. Answers `If-Match` and ranges, and counts what it was asked for.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

/// Names in one page of a listing: few, so that most listings have several.
const PAGE: usize = 7;

pub(crate) struct Bucket {
    port: u16,
    asked: Arc<Asked>,
}

/// What a bucket was asked for.
#[derive(Default)]
struct Asked {
    requests: AtomicUsize,
    bytes: AtomicU64,
}

impl Bucket {
    /// Serves a folder until the process ends.
    pub(crate) fn of(folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (folder, asked) = (folder.canonicalize().unwrap(), Arc::new(Asked::default()));
        let counter = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (folder, counter) = (folder.clone(), counter.clone());
                // A client that goes away is no failure.
                thread::spawn(move || drop(serve(&folder, &counter, stream.unwrap())));
            }
        });
        Self { port, asked }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// How many requests for bytes of objects there were.
    pub(crate) fn asked(&self) -> usize {
        self.asked.requests.load(Relaxed)
    }

    /// How many bytes of objects were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.asked.bytes.load(Relaxed)
    }
}

struct Request {
    is_head: bool,
    path: String,
    query: String,
    range: Option<(u64, Option<u64>)>,
    if_match: Option<String>,
}

fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let (path, query) = target.split_once('?').map_or((&*target, ""), |(path, query)| (path, query));
    let (path, query) = (unescape(path), query.to_owned());
    let mut request = Request { is_head: method == "HEAD", path, query, range: None, if_match: None };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(": ") else { return Ok(Some(request)) };
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let (start, end) = value.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
                request.range = Some((start.parse().unwrap(), end.parse().ok()));
            }
            "if-match" => request.if_match = Some(value.to_owned()),
            _ => {}
        }
    }
}

fn serve(folder: &Path, asked: &Asked, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read_request(&mut reader)? {
        let (status, headers, body) = answer(folder, asked, &request);
        let mut head = format!("HTTP/1.1 {status}\r\n{headers}");
        if !headers.contains("content-length") {
            write!(head, "content-length: {}\r\n", body.len()).unwrap();
        }
        let mut bytes = format!("{head}\r\n").into_bytes();
        bytes.extend(body.iter().take(if request.is_head { 0 } else { usize::MAX }));
        (&stream).write_all(&bytes)?;
    }
    Ok(())
}

type Answer = (&'static str, String, Vec<u8>);

fn answer(folder: &Path, asked: &Asked, request: &Request) -> Answer {
    let key = request.path.strip_prefix("/bucket/").unwrap_or(request.path.trim_start_matches('/'));
    if request.query.contains("list-type=2") {
        return ("200 OK", "content-type: application/xml\r\n".into(), list(folder, &request.query).into_bytes());
    }
    let path = folder.join(key);
    if path.is_dir() && (key.is_empty() || key.ends_with('/')) {
        return ("200 OK", "content-type: application/json\r\n".into(), index(&path).into_bytes());
    }
    asked.requests.fetch_add(1, Relaxed);
    let Some(file) = File::open(&path).ok().filter(|_| path.is_file()) else {
        let body = b"<Error><Code>NoSuchKey</Code></Error>".to_vec();
        return ("404 Not Found", "content-type: application/xml\r\n".into(), body);
    };
    let (size, tag) = (file.metadata().unwrap().len(), tag(&path));
    if request.if_match.as_ref().is_some_and(|wanted| *wanted != tag) {
        return ("412 Precondition Failed", String::new(), Vec::new());
    }
    let mut headers = format!("etag: {tag}\r\nlast-modified: Thu, 29 Feb 2024 12:34:56 GMT\r\n");
    let (start, end) =
        request.range.map_or((0, size), |(start, end)| (start, end.map_or(size, |end| size.min(end + 1))));
    if request.range.is_some() && start >= size {
        return ("416 Range Not Satisfiable", format!("content-range: bytes */{size}\r\n"), Vec::new());
    }
    if request.is_head {
        write!(headers, "content-length: {size}\r\n").unwrap();
        return ("200 OK", headers, Vec::new());
    }
    let mut body = vec![0; (end - start) as usize];
    file.read_exact_at(&mut body, start).unwrap();
    asked.bytes.fetch_add(end - start, Relaxed);
    if request.range.is_none() {
        return ("200 OK", headers, body);
    }
    write!(headers, "content-range: bytes {start}-{}/{size}\r\n", end - 1).unwrap();
    ("206 Partial Content", headers, body)
}

/// Another one for each state of a file.
fn tag(path: &Path) -> String {
    let bytes = fs::read(path).unwrap();
    format!("\"{:016x}\"", xxhash_rust::xxh64::xxh64(&bytes, bytes.len() as u64))
}

/// A page of `ListObjectsV2` with the delimiter `/`: keys in order, and where the next page goes on.
fn list(folder: &Path, query: &str) -> String {
    let value = |name: &str| {
        let found = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        unescape(found.unwrap_or_default())
    };
    let (prefix, more, most) = (value("prefix"), value("continuation-token"), value("max-keys"));
    let mut found = BTreeSet::new();
    let below = folder.join(prefix.rsplit_once('/').map_or("", |(below, _)| below));
    for entry in fs::read_dir(&below).into_iter().flatten() {
        let path: PathBuf = entry.unwrap().path();
        let slash = if path.is_dir() { "/" } else { "" };
        let key = format!("{}{slash}", path.strip_prefix(folder).unwrap().to_str().unwrap());
        if key.starts_with(&prefix) && key > more {
            found.insert(key);
        }
    }
    let page = PAGE.min(most.parse().unwrap());
    let mut xml = String::from("<ListBucketResult><Name>bucket</Name><EncodingType>url</EncodingType>");
    for key in found.iter().take(page) {
        let shown = escape(key);
        if key.ends_with('/') {
            write!(xml, "<CommonPrefixes><Prefix>{shown}</Prefix></CommonPrefixes>").unwrap();
            continue;
        }
        let path = folder.join(key);
        let (size, tag) = (path.metadata().unwrap().len(), tag(&path).replace('"', "&quot;"));
        write!(xml, "<Contents><Key>{shown}</Key><Size>{size}</Size><ETag>{tag}</ETag>").unwrap();
        xml.push_str("<LastModified>2024-02-29T12:34:56.000Z</LastModified></Contents>");
    }
    if found.len() > page {
        let last = escape(found.iter().take(page).next_back().unwrap());
        write!(xml, "<NextContinuationToken>{last}</NextContinuationToken>").unwrap();
    }
    write!(xml, "<IsTruncated>{}</IsTruncated></ListBucketResult>", found.len() > page).unwrap();
    xml
}

/// The index of a folder as nginx gives it (`autoindex_format json`).
fn index(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let entries = entries.map(|path| {
        let (name, meta) = (path.file_name().unwrap().to_str().unwrap(), path.metadata().unwrap());
        let kind = if meta.is_dir() { "directory" } else { "file" };
        serde_json::json!({"name": name, "type": kind, "mtime": "Thu, 29 Feb 2024 12:34:56 GMT", "size": meta.len()})
    });
    serde_json::Value::from_iter(entries).to_string()
}

fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    text.bytes().fold(String::new(), |mut out, byte| {
        if plain(byte) {
            out.push(byte.into())
        } else {
            write!(out, "%{byte:02X}").unwrap()
        }
        out
    })
}

fn unescape(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).unwrap()
}
