//! Every limit that protects the daemon from what a file claims, in one place.

/// Blocks up to this size are decoded and checked whole before their first byte is handed out; larger ones while
/// they are read (`docs/TREE.md`, section 2).
pub const WHOLE_BLOCK: u64 = 64 << 20;

/// The most bytes that a block may state: sizes of files are below 2^63, and a header stands in front.
pub const LARGEST_BLOCK: u64 = 1 << 62;

/// Pieces in which stored bytes are read for a checksum, and files from end to end.
pub const PIECE: usize = 1 << 20;

/// The first of the pieces in which larger blocks are decoded; each next one doubles what is there.
pub const FIRST_PIECE: usize = 64 << 10;

/// Bytes that are read, copied, decoded or checked on the spot where they can be had at once: handing the request to
/// another thread costs about as much.
pub const QUICK: u64 = 64 << 10;

/// Bytes of a container that are read to open it on the spot, where they are in memory: parsing them takes about as long
/// as handing the request to another thread.
pub const QUICK_OPEN: u64 = 128 << 10;

/// Bytes of its front that are read in one go when a container is opened on the spot.
pub const FRONT: usize = 16 << 10;

/// The largest of them. Of this size they lie in large pages: decoding 256 MiB of zstd into these took 305 ms, into
/// pieces of 1 MiB 440 ms, into memory that was there already 290 ms.
pub const DECODED_PIECE: usize = 4 << 20;

/// What requests for memory may go beyond the cache's budget, all together: one for more than the whole budget, or what
/// an owner needs to finish. More is refused.
pub const BEYOND_BUDGET: u64 = 16 << 20;

/// How often work that reserves memory in several steps is begun anew when others hold what it needs.
pub const MEMORY_TRIES: u32 = 8;

/// Metadata JSON (`meta/*` of a Shard file, schemas of tree sequences) larger than this is shown as a file but not
/// interpreted: parsed, a byte of it can take fifty in memory.
pub const METADATA_JSON: u64 = 1 << 20;

/// `meta/manifest` of a chunked episode. Only what joins the chunks is kept of it, less than four times its size.
pub const SHARD_MANIFEST: u64 = 16 << 20;

/// Arrays of a joined episode times its chunks; 8 bytes of memory each.
pub const JOINED_PARTS: usize = 1 << 20;

/// The schema section of a Shard file, of which only is asked whether it is JSON.
pub const SHARD_SCHEMA: u64 = 16 << 20;

/// u8 language blocks up to this size get a text view beside the array (`docs/TREE.md`, section 3).
pub const LANGUAGE_TEXT: u64 = 1 << 20;

/// Bytes at the front of a block that may be decoded to choose a suffix (`docs/TREE.md`, section 3).
pub const SNIFF: usize = 2048;

/// Entries of a Shard file (`docs/formats/wshard.md` 22).
pub const SHARD_ENTRIES: u32 = 10_000_000;

/// String table of a Shard file (`docs/formats/wshard.md` 22).
pub const SHARD_STRING_TABLE: u64 = 100 << 20;

/// Folders that the names of one container may ask for with their slashes, at some 200 bytes of memory each: so many,
/// and [`FOLDERS_A_NAME`] more for each name.
pub const FOLDERS: usize = 1 << 18;

/// See [`FOLDERS`].
pub const FOLDERS_A_NAME: usize = 16;

/// Bytes of all keys of one store of a kastore or KAST file together, which are held in memory; in a KAST file keys may
/// share their bytes.
pub const STORE_KEYS: u64 = 16 << 20;

/// Dimensions of an array that becomes `.npy` (numpy 1's own limit, `docs/TREE.md`, section 3).
pub const DIMENSIONS: usize = 32;

/// Memory that a zstd frame may ask for as its window (`docs/formats/wshard.md` 22): 2^27 = 128 MiB.
pub const ZSTD_WINDOW_LOG: u32 = 27;

/// Containers kept open (descriptor and map) at once, where the limit on descriptors allows it.
pub const OPEN_SOURCES: usize = 256;

/// Their names and indexes take at most this part of the cache's budget, and [`OPEN_MEMORY`] where that is more. One
/// is always open, whatever it takes.
pub const OPEN_MEMORY_PART: u64 = 8;

/// See [`OPEN_MEMORY_PART`].
pub const OPEN_MEMORY: u64 = 16 << 20;

/// The part of this process's descriptors that open containers may take: the rest is for requests under way.
pub const DESCRIPTORS_PART: u64 = 4;

/// Ordinary files that are kept open between two reads.
pub const OPEN_FILES: usize = 64;

/// Files of which is remembered whether they are containers, at some 30 bytes of memory each.
pub const VERDICTS: usize = 1 << 19;

/// Names that one folder of a remote store may have, at some 100 bytes of memory each.
pub const LISTED: usize = 5_000_000;

/// Names of all listed folders of a remote store together that are remembered; the newest listing is always kept.
pub const LISTED_NAMES: usize = 1_000_000;

/// Folders of a remote store of which something is remembered.
pub const LISTED_FOLDERS: usize = 4096;

/// Bytes of the names of folders that were listed and are remembered; the newest listing is always kept.
pub const LISTINGS: usize = 16 << 20;

/// Folders of SOURCE that are watched for changes; those beyond are looked at again when their names run out.
pub const WATCHES: usize = 8192;

/// Milliseconds for which a file must not have been written to before it is opened as a container: the call that moved
/// its modification time may still be writing.
pub const SETTLED_MILLIS: u64 = 100;

/// A file that was changed this recently is not lent from its map.
pub const QUIET_SECONDS: u64 = 3;

/// Address space that must be left beside a large allocation, where the process may have only so much.
pub const HEADROOM: usize = 16 << 20;

/// Threads for requests that wait for a disk or a decoder. A part of them may be in requests to one filesystem, so that
/// one which never answers leaves the others theirs.
pub const POOL_THREADS: usize = 512;

/// See [`POOL_THREADS`].
pub const POOL_PART: usize = 8;

/// The part of the cache's budget that one reply may take: the 64 that can be made at once for files of one filesystem
/// ([`POOL_THREADS`], [`POOL_PART`]) take a quarter of it.
pub const REPLIES_PART: u64 = 256;

/// The largest request for bytes that the kernel makes by itself.
pub const LARGEST_READ: u64 = 1 << 20;

/// The smallest that it is asked to keep to where the budget is small.
pub const SMALLEST_READ: u64 = 64 << 10;

/// Address space for each thread of the pool, where the process may have only so much.
pub const ADDRESS_SPACE_A_THREAD: u64 = 48 << 20;

/// Problems kept for `problems.jsonl`; older ones make room.
pub const PROBLEMS: usize = 10_000;

/// Bytes of each text of a problem (container, path, block, message); names in containers may be longer.
pub const PROBLEM_TEXT: usize = 1024;

/// Problems written to the log a minute; how many more there were is said afterwards.
pub const LOGGED_A_MINUTE: u32 = 200;

/// Pictures of one KDB episode that are indexed; the frames behind count as damaged. 32 bytes of memory each.
pub const KDB_RECORDS: usize = 4 << 20;

/// Cameras of one KDB episode, and bytes of all their names.
pub const KDB_CAMERAS: usize = 1 << 16;

/// See [`KDB_CAMERAS`].
pub const KDB_CAMERA_NAMES: usize = 16 << 20;

/// Pictures whose places one KDB container keeps in memory, over all its episodes; the newest episode is always kept.
pub const KDB_INDEXED: usize = 1 << 18;

/// Bytes that an encoded picture may decode to. A larger one is still handed out as it is stored.
pub const PICTURE: u64 = 256 << 20;

/// What chunks of a picture that are no pixels (a colour profile, say) may take, stored and in memory.
pub const PICTURE_CHUNKS: u64 = 8 << 20;

/// Columns of an IDV file; 16 bytes of memory each.
pub const IDV_COLUMNS: u64 = 10_000_000;

/// Columns of an IDV file that `container.json` describes; of more it says how many were left out.
pub const IDV_DESCRIBED: u32 = 10_000;

/// A name in an IDV file: of a column, a codec, a kind of metadata.
pub const IDV_NAME: u64 = 1 << 20;

/// Parameters of a codec of an IDV file; known codecs need far fewer.
pub const IDV_PARAMETERS: u64 = 4096;

/// Blocks of one column of an IDV file: numbers of files and of problems end there.
pub const IDV_BLOCKS: u64 = u32::MAX as u64;

/// Blocks of a column whose sizes depend on each block's content, 8 bytes of memory each.
pub const IDV_SIZED_BLOCKS: u64 = 1 << 24;

/// Sizes of blocks that one IDV container keeps in memory, over all its columns; the newest column is always kept.
pub const IDV_SIZES: usize = 1 << 21;

/// Columns, and metadata, of one IDV container that are kept parsed.
pub const IDV_PARSED: usize = 256;

/// Metadata of one column, and bytes of all their kinds.
pub const IDV_METADATA: usize = 1 << 16;

/// See [`IDV_METADATA`].
pub const IDV_METADATA_NAMES: u64 = 16 << 20;

/// Bytes that one metadata value may decode to (`docs/formats/idv.md` 12).
pub const IDV_METADATA_VALUE: u64 = 64 << 20;

/// Blocks that are remembered by where they are stored while the sizes of a column are added up; about 60 bytes each.
pub const IDV_SEEN_BLOCKS: usize = 1 << 16;

/// Files smaller than this are not finished in memory for the kernel: opening and reading them takes as long from its
/// page cache (docs/TUNING.md), without a descriptor for each.
pub const MEMORY_FILE: u64 = 256 << 10;

/// Files that are kept in memory for the kernel at once. Each is a descriptor.
pub const MEMORY_FILES: usize = 4096;

/// [`MEMORY_FILES`], or the part of this process's descriptors that they may take where that is less.
pub fn memory_files() -> usize {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / DESCRIPTORS_PART).unwrap_or(usize::MAX).min(MEMORY_FILES)
}

/// What is at least kept of a large block that the budget has no room for.
pub const SMALLEST_WINDOW: u64 = 16 << 20;

/// Pieces in which the server reads files: each connection holds two at most, one that is sent and one behind it.
pub const SERVED_PIECE: u64 = 256 << 10;

/// Files that the server remembers by their address.
pub const RECENT_FILES: usize = 8 << 10;

/// Bytes of an address that is remembered. Together with the file's path these are some 10 MiB at most.
pub const RECENT_ADDRESS: usize = 512;

/// Connections of the server at once; those beyond wait to be accepted.
pub const CONNECTIONS: usize = 256;

/// Of these, those of one address of another machine.
pub const CONNECTIONS_AN_ADDRESS: usize = 64;

/// Bytes of a request's line and headers.
pub const REQUEST_HEAD: usize = 32 << 10;

/// Headers of a request.
pub const REQUEST_HEADERS: usize = 64;

/// Bytes of a request's body: what WebDAV clients ask for, as XML.
pub const REQUEST_BODY: usize = 64 << 10;

/// Requests of the server that may wait for a disk or a decoder at once.
pub const REQUESTS_AT_ONCE: usize = 64;

/// Of these, pages and what their scripts ask for: each takes up to 24 MiB while it is made.
pub const PAGES_AT_ONCE: usize = 8;

/// Seconds in which a client has to send a request's head, or its body, and for which a connection may do nothing.
pub const REQUEST_SECONDS: u64 = 15;

/// Seconds in which an answer has to begin.
pub const ANSWER_SECONDS: u64 = 120;

/// Seconds for which a client may take nothing of an answer.
pub const STALLED_SECONDS: u64 = 60;

/// Columns of a table that is shown as a Parquet file; those behind are left out of it. Readers open 10,000 in a tenth
/// of a second, and ten times as many in a second and a half.
pub const TABLE_COLUMNS: usize = 10_000;

/// Elements of a list in such a file; columns of longer ones are left out.
pub const TABLE_LIST: u64 = 4096;

/// Chunks of such a file, of some 50 bytes each in its footer: with more, row groups have more rows.
pub const TABLE_CHUNKS: u64 = 1 << 17;

/// Rows of a row group, about. Readers work on several at once and hold those whole.
pub const TABLE_GROUP: u64 = 1 << 18;

/// The same where rows are stored in blocks, which are decoded whole: a row group is to need few of each column.
pub const TABLE_GROUP_OF_BLOCKS: u64 = 1 << 17;

/// Bytes of a page, about: wide rows make groups of fewer of them.
pub const TABLE_PAGE: u64 = 64 << 20;

/// The same of a page of texts, which is made as a whole.
pub const TABLE_TEXT_PAGE: u64 = 16 << 20;

/// Bytes of the texts that keys of one column stand for, and of all columns of a table: they stand in front of every
/// page. With more, keys are shown as numbers.
pub const TABLE_DICTIONARY: usize = 1 << 20;

/// See [`TABLE_DICTIONARY`].
pub const TABLE_DICTIONARIES: usize = 16 << 20;

/// Episodes of a KDB file that has tables: all index entries are read for these, 64 bytes each.
pub const TABLE_EPISODES: u64 = 1 << 24;

/// Episodes of a KDB file whose description says how many steps there are.
pub const TABLE_EPISODES_DESCRIBED: u64 = 1 << 16;
