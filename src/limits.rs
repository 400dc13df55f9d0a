//! Limits that protect the process from what files, clients and servers claim. SECURITY.md lists those that users meet.
//!
//! Limits that concern one module alone are constants of that module.

/// Blocks up to this size are decoded and checked whole before their first byte is handed out; larger ones while
/// they are read (`docs/TREE.md`, section 2).
pub const WHOLE_BLOCK: u64 = 64 << 20;

/// Largest size in bytes that a block may state. File sizes are below 2^63, and a header comes before the block.
pub const LARGEST_BLOCK: u64 = 1 << 62;

/// Size in bytes of the pieces in which stored bytes are read for a checksum, and files from end to end.
pub const PIECE: usize = 1 << 20;

/// Size in bytes of the first piece of a block larger than [`WHOLE_BLOCK`]. Each next piece is as large as all before it
/// together, up to [`DECODED_PIECE`].
pub const FIRST_PIECE: usize = 64 << 10;

/// Bytes that are read, copied, decoded or checked on the spot where they can be had at once: handing the request to
/// another thread costs about as much.
pub const QUICK: u64 = 64 << 10;

/// Bytes of a container that are read to open it on the spot, where they are in memory: parsing them takes about as long
/// as handing the request to another thread.
pub const QUICK_OPEN: u64 = 128 << 10;

/// Bytes of its front that are read in one go when a container is opened on the spot.
pub const FRONT: usize = 16 << 10;

/// Largest piece in bytes of a block larger than [`WHOLE_BLOCK`]. Pieces of 4 MiB get large pages: decoding 256 MiB of
/// zstd took 305 ms with them, 440 ms with pieces of 1 MiB, and 290 ms into memory that was there already.
pub const DECODED_PIECE: usize = 4 << 20;

/// Bytes that all requests for memory together may take beyond the cache's budget: one request for more than the whole
/// budget, or what an owner needs to finish. More is refused.
pub const BEYOND_BUDGET: u64 = 16 << 20;

/// How often work that reserves memory in several steps starts again when others hold what it needs.
pub const MEMORY_TRIES: u32 = 8;

/// Metadata JSON (`meta/*` of a Shard file, schemas of tree sequences) larger than this is shown as a file but not
/// interpreted: parsed, a byte of it can take fifty in memory.
pub const METADATA_JSON: u64 = 1 << 20;

/// Longest row of metadata of a tree sequence that is decoded, in bytes. A row is decoded whole.
pub const PACKED_ROW: u64 = 64 << 20;

/// Most lists of varying length in a row of such metadata. To find a value, all lists before it are passed over.
pub const PACKED_LISTS: usize = 64;

/// Bytes of memory that a byte of JSON can take when it is interpreted. The worst case, `{"":0},`, is an object with a
/// map of its own.
pub const JSON_ROOM: u64 = 50;

/// Largest `meta/manifest` of a chunked episode, in bytes. What is kept of it takes less than four times its size.
pub const SHARD_MANIFEST: u64 = 16 << 20;

/// Largest product of a joined episode's arrays and chunks; 8 bytes of memory each.
pub const JOINED_PARTS: usize = 1 << 20;

/// Largest schema section of a Shard file, in bytes. It is only checked for being JSON.
pub const SHARD_SCHEMA: u64 = 16 << 20;

/// u8 language blocks up to this size get a text view beside the array (`docs/TREE.md`, section 3).
pub const LANGUAGE_TEXT: u64 = 1 << 20;

/// Bytes at the front of a block that may be decoded to choose a suffix (`docs/TREE.md`, section 3).
pub const SNIFF: usize = 2048;

/// Most entries of a Shard file (`docs/formats/wshard.md` 22).
pub const SHARD_ENTRIES: u32 = 10_000_000;

/// Largest string table of a Shard file, in bytes (`docs/formats/wshard.md` 22).
pub const SHARD_STRING_TABLE: u64 = 100 << 20;

/// Folders that the slashes in one container's names may create, about 200 bytes of memory each: this many, and
/// [`FOLDERS_A_NAME`] more for each name.
pub const FOLDERS: usize = 1 << 18;

/// See [`FOLDERS`].
pub const FOLDERS_A_NAME: usize = 16;

/// Bytes of all keys of one store together (kastore or KAST), which are held in memory. Keys of a KAST file may share
/// their bytes.
pub const STORE_KEYS: u64 = 16 << 20;

/// Longest header of a safetensors file, in bytes (`docs/formats/safetensors.md` 1).
pub const TENSOR_HEADER: u64 = 100_000_000;

/// Most bytes that are read in front of the data of a GGUF file. Vocabularies take some MiB.
pub const GGUF_FRONT: u64 = 1 << 30;

/// Longest header of a NetCDF classic file, in bytes (`docs/formats/netcdf.md` 2).
pub const NETCDF_HEADER: u64 = 64 << 20;

/// Most rows of texts that are looked at one by one to lay out their lines and offsets.
pub const TEXT_ROWS: u64 = 100_000_000;

/// Most tensors of a model file; about 300 bytes of memory each.
pub const TENSORS: usize = 1_000_000;

/// Most files of one joined model.
pub const SHARDS: usize = 1 << 16;

/// Largest pickle of a checkpoint when decoded, in bytes (`docs/formats/pt.md` 2).
pub const PICKLE: u64 = 64 << 20;

/// Most entries of the stack and the memo of a pickle together, and most objects that it makes; up to 200 bytes of
/// memory each.
pub const PICKLE_ENTRIES: usize = 10_000_000;

/// Deepest value of a pickle that is shown. Walks recurse that deep.
pub const PICKLE_DEPTH: usize = 64;

/// Most values of a pickle that are shown. Values that are met several times count each time.
pub const PICKLE_NODES: usize = 1_000_000;

/// Most bytes of the names and texts of a pickle that are shown, counted in the same way. Short texts that are shown a
/// million times make large documents.
pub const PICKLE_TEXT: u64 = 256 << 20;

/// Most items that `container.json` describes. It says how many were left out.
pub const DESCRIBED: usize = 10_000;

/// Largest chunk of a chunked array when decoded, in bytes. Zarr and HDF5 count them in 32 bits.
pub const CHUNK: u64 = 1 << 32;

/// Longest footer of a Parquet file that is read, in bytes (`docs/formats/lerobot.md` 12).
pub const PARQUET_FOOTER: u64 = 64 << 20;

/// Most row groups times columns of a Parquet file that is read, about 50 bytes of memory each.
pub const PARQUET_CHUNKS: usize = 1_000_000;

/// Deepest group of a Parquet schema: five lists, and structures around them.
pub const PARQUET_DEPTH: usize = 32;

/// Largest page of a Parquet file that is read, in bytes: after decompression, and when its values are decoded.
pub const PARQUET_PAGE: u64 = 1 << 30;

/// Most values of a page. A run of them takes a few bytes.
pub const PARQUET_VALUES: u64 = 1 << 27;

/// Largest width and height of pictures that are shown as one array.
pub const PICTURE_SIDE: u64 = 16_384;

/// Most pictures of a stack of pixels or rows; a stack of more is shown as an array alone. A folder that is listed takes
/// about 200 bytes of memory for each.
pub const PICTURES: u64 = 1 << 22;

/// Largest `meta/info.json` of a LeRobot data set, in bytes (`docs/formats/lerobot.md` 12).
pub const LEROBOT_INFO: u64 = 16 << 20;

/// Most features of a LeRobot data set.
pub const LEROBOT_FEATURES: usize = 4096;

/// Most episodes of a LeRobot data set; 100 bytes of memory each, and 16 for each camera.
pub const LEROBOT_EPISODES: usize = 10_000_000;

/// Most steps of an episode of a LeRobot data set.
pub const LEROBOT_STEPS: u64 = 1 << 24;

/// Most tasks of a LeRobot data set.
pub const LEROBOT_TASKS: usize = 1_000_000;

/// Longest line of JSON of a LeRobot data set, in bytes.
pub const LEROBOT_LINE: usize = 16 << 20;

/// Most dimensions of an array that becomes `.npy` (numpy 1's own limit, `docs/TREE.md`, section 3).
pub const DIMENSIONS: usize = 32;

/// Most fields of a record (HDF5's own limit).
pub const RECORD_FIELDS: usize = 65_535;

/// Most records inside each other.
pub const RECORD_DEPTH: usize = 32;

/// Most bytes of an element (numpy's own limit).
pub const ELEMENT: u64 = i32::MAX as u64;

/// Base-2 logarithm of the largest window that a zstd frame may ask for (`docs/formats/wshard.md` 22): 128 MiB.
pub const ZSTD_WINDOW_LOG: u32 = 27;

/// Containers kept open at once, if the limit on descriptors and [`OPEN_MEMORY_PART`] allow it. Each has a descriptor and a
/// map; Linux allows a process 65,530 maps.
pub const OPEN_SOURCES: usize = 16 << 10;

/// Names and indexes of open containers take at most this fraction (1/n) of the cache's budget, or [`OPEN_MEMORY`] if
/// that is more. One container may always be open, whatever it takes.
pub const OPEN_MEMORY_PART: u64 = 8;

/// See [`OPEN_MEMORY_PART`].
pub const OPEN_MEMORY: u64 = 16 << 20;

/// Fraction (1/n) of this process's descriptors that open containers may take. The rest is for requests under way.
pub const DESCRIPTORS_PART: u64 = 4;

/// Most ordinary files that are kept open between two reads.
pub const OPEN_FILES: usize = 64;

/// Files and containers on a filesystem that is mounted below SOURCE are closed when they were not used for so many
/// seconds: one that is open keeps its filesystem from being unmounted.
pub const IDLE_SECONDS: u64 = 10;

/// Most files whose detection is remembered (container or not), about 80 bytes of memory each.
pub const VERDICTS: usize = 1 << 18;

/// Most names in one folder of a remote store, about 100 bytes of memory each.
pub const LISTED: usize = 5_000_000;

/// The names of one folder of a remote store take at most this fraction (1/n) of the cache's budget and [`BEYOND_BUDGET`].
/// One answer of the server takes at most a quarter of that.
pub const LISTING_PART: u64 = 2;

/// Most names that are remembered of all listed folders of a remote store together. The newest listing is always kept.
pub const LISTED_NAMES: usize = 1_000_000;

/// Most folders of a remote store about which something is remembered.
pub const LISTED_FOLDERS: usize = 4096;

/// Most folders of SOURCE that are watched. Others are looked at again when the kernel asks for their names again.
pub const WATCHES: usize = 8192;

/// Milliseconds without a change before a file is opened as a container. The call that moved its modification time may
/// still be writing.
pub const SETTLED_MILLIS: u64 = 100;

/// Seconds without a change before bytes of a file are lent from its map instead of copied.
pub const QUIET_SECONDS: u64 = 3;

/// Bytes of address space that a large allocation must leave free if the process has a limit (`RLIMIT_AS`).
pub const HEADROOM: usize = 16 << 20;

/// Most threads for requests that wait for a disk or a decoder. One filesystem gets 1/[`POOL_PART`] of them, so that one
/// which never answers leaves the others theirs.
pub const POOL_THREADS: usize = 512;

/// See [`POOL_THREADS`].
pub const POOL_PART: usize = 8;

/// Fraction (1/n) of the cache's budget that one reply may take. The 64 replies that can be made at once for one
/// filesystem ([`POOL_THREADS`], [`POOL_PART`]) then take a quarter of it.
pub const REPLIES_PART: u64 = 256;

/// Largest reply in bytes: FUSE asks for at most 1 MiB.
pub const LARGEST_READ: u64 = 1 << 20;

/// Largest reply in bytes if the budget is small; no budget makes it smaller.
pub const SMALLEST_READ: u64 = 64 << 10;

/// Bytes of address space counted for each thread of the pool if the process has a limit (`RLIMIT_AS`).
pub const ADDRESS_SPACE_A_THREAD: u64 = 48 << 20;

/// Most problems kept for `problems.jsonl`. The oldest go first.
pub const PROBLEMS: usize = 10_000;

/// Longest text of a problem (container, path, block, message), in bytes. Names in containers may be longer.
pub const PROBLEM_TEXT: usize = 1024;

/// Most problems written to the log in a minute. One line then says how many more there were.
pub const LOGGED_A_MINUTE: u32 = 200;

/// Most pictures of one KDB episode that are indexed, 32 bytes of memory each. Later frames count as damaged.
pub const KDB_RECORDS: usize = 4 << 20;

/// Most cameras of one KDB episode.
pub const KDB_CAMERAS: usize = 1 << 16;

/// Bytes of the names of all cameras of one KDB episode.
pub const KDB_CAMERA_NAMES: usize = 16 << 20;

/// Largest decoded size of an encoded picture, in bytes. A larger picture is only shown as it is stored.
pub const PICTURE: u64 = 256 << 20;

/// Bytes that chunks of a picture other than pixels (a colour profile, say) may take, stored and in memory.
pub const PICTURE_CHUNKS: u64 = 8 << 20;

/// Most columns of an IDV file; 16 bytes of memory each.
pub const IDV_COLUMNS: u64 = 10_000_000;

/// Most columns of an IDV file that `container.json` describes. It says how many were left out.
pub const IDV_DESCRIBED: u32 = 10_000;

/// Longest name in an IDV file (of a column, a codec, a kind of metadata), in bytes.
pub const IDV_NAME: u64 = 1 << 20;

/// Longest parameters of a codec of an IDV file, in bytes. Known codecs need far fewer.
pub const IDV_PARAMETERS: u64 = 4096;

/// Most blocks of one column of an IDV file. Numbers of blocks have 32 bits.
pub const IDV_BLOCKS: u64 = u32::MAX as u64;

/// Most blocks of an IDV column if their sizes depend on their content; 8 bytes of memory each.
pub const IDV_SIZED_BLOCKS: u64 = 1 << 24;

/// Most metadata of one IDV column.
pub const IDV_METADATA: usize = 1 << 16;

/// Bytes of the names of all metadata of one IDV column.
pub const IDV_METADATA_NAMES: u64 = 16 << 20;

/// Largest decoded size of one metadata value, in bytes (`docs/formats/idv.md` 12).
pub const IDV_METADATA_VALUE: u64 = 64 << 20;

/// Most blocks that are remembered by their place while the sizes of an IDV column are added up; about 60 bytes each.
pub const IDV_SEEN_BLOCKS: usize = 1 << 16;

/// Smallest file in bytes that is finished in memory for the kernel. Smaller ones are as fast from its page cache
/// (docs/TUNING.md), and need no descriptor each.
pub const MEMORY_FILE: u64 = 256 << 10;

/// Most files that are kept in memory for the kernel. Each takes a descriptor.
pub const MEMORY_FILES: usize = 4096;

/// Returns how many files are kept in memory for the kernel: [`MEMORY_FILES`], or fewer if the limit on descriptors is
/// low.
pub fn memory_files() -> usize {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / DESCRIPTORS_PART).unwrap_or(usize::MAX).min(MEMORY_FILES)
}

/// Bytes that are kept at least of a large block for which the budget has no room.
pub const SMALLEST_WINDOW: u64 = 16 << 20;

/// Bytes that the server reads of a file at a time. A connection holds at most two pieces: one is sent, one waits.
pub const SERVED_PIECE: u64 = 128 << 10;

/// Most files that the server remembers by their address.
pub const RECENT_FILES: usize = 8 << 10;

/// Longest address that is remembered, in bytes. All of them with the paths of the files take about 10 MiB at most.
pub const RECENT_ADDRESS: usize = 512;

/// Most connections of the server. For another one, the connection that has waited longest for a request is ended; while
/// requests of all are being answered, others wait to be accepted.
pub const CONNECTIONS: usize = 256;

/// Most connections that have not shown the token, if there is one. The other places are for those who have.
pub const STRANGERS: usize = 64;

/// Most connections of one address of another machine.
pub const CONNECTIONS_AN_ADDRESS: usize = 64;

/// Longest request line and headers, in bytes.
pub const REQUEST_HEAD: usize = 32 << 10;

/// Most headers of a request.
pub const REQUEST_HEADERS: usize = 64;

/// Longest body of a request, in bytes: the XML of WebDAV clients.
pub const REQUEST_BODY: usize = 64 << 10;

/// Most elements of such a body. Clients name about ten properties, and each costs work for each name of a folder.
pub const DAV_ELEMENTS: usize = 128;

/// Deepest element of such a body: `propfind`, `prop`, a property, and what an extension puts there.
pub const DAV_DEPTH: usize = 8;

/// Bytes of the names of properties in such a body, with their namespaces. The answer repeats the unknown ones for each
/// name of a folder.
pub const DAV_NAMES: usize = 4 << 10;

/// Bytes a second that a client must take of an answer so that its connection does not give way when all places are
/// busy, over at least [`RATE_SECONDS`]. A modem is faster.
pub const LEAST_RATE: u64 = 1 << 10;

/// See [`LEAST_RATE`].
pub const RATE_SECONDS: u64 = 10;

/// Most requests of the server that wait for a disk or a decoder at once.
pub const REQUESTS_AT_ONCE: usize = 64;

/// Most pages, and answers to their scripts, that are made at once. Each takes up to 8 MiB meanwhile, beside what the cache's budget has.
pub const PAGES_AT_ONCE: usize = 8;

/// Seconds that a client has to send a request's head, or its body. A connection may also be idle for so long.
pub const REQUEST_SECONDS: u64 = 15;

/// Seconds until an answer has to begin.
pub const ANSWER_SECONDS: u64 = 120;

/// Seconds for which a client may take nothing of an answer.
pub const STALLED_SECONDS: u64 = 60;

/// Most columns of a Parquet file; later ones are left out. Readers open 10,000 columns in 0.1 s and 100,000 in 1.5 s.
pub const TABLE_COLUMNS: usize = 10_000;

/// Most elements of a list in a Parquet file. Columns with longer lists are left out.
pub const TABLE_LIST: u64 = 4096;

/// Most column chunks of a Parquet file, about 50 bytes each in its footer. Row groups get larger to stay below it.
pub const TABLE_CHUNKS: u64 = 1 << 17;

/// Usual rows of a row group. Readers work on several at once and hold each one whole.
pub const TABLE_GROUP: u64 = 1 << 18;

/// Usual rows of a row group if rows are stored in blocks. Blocks are decoded whole, so a group should need few of
/// each column.
pub const TABLE_GROUP_OF_BLOCKS: u64 = 1 << 17;

/// Usual largest page in bytes. Groups of wide rows have fewer rows.
pub const TABLE_PAGE: u64 = 64 << 20;

/// Usual largest page of texts in bytes. Such pages are made whole.
pub const TABLE_TEXT_PAGE: u64 = 16 << 20;

/// Bytes of the texts of one column's keys. They come before every page; if there are more, keys are shown as numbers.
pub const TABLE_DICTIONARY: usize = 1 << 20;

/// Bytes of the texts of one column's categories, four more for each. A column with more is left out.
pub const TABLE_CATEGORIES: u64 = 256 << 20;

/// Bytes of the texts of all columns' keys in one table. Columns beyond it show keys as numbers.
pub const TABLE_DICTIONARIES: usize = 16 << 20;

/// Most episodes of a KDB file that has tables. Tables need all index entries, 64 bytes each.
pub const TABLE_EPISODES: u64 = 1 << 24;

/// Most episodes of a KDB file whose `container.json` says how many steps there are.
pub const TABLE_EPISODES_DESCRIBED: u64 = 1 << 16;

/// Bytes of the central directory of a zip archive (`docs/formats/npz.md` 2).
pub const ZIP_DIRECTORY: u64 = 64 << 20;

/// Members of a zip archive (`docs/formats/npz.md` 2).
pub const ZIP_MEMBERS: u64 = 1_000_000;
