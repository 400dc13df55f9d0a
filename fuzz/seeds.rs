//! Writes the seeds of a target, `codecs` or `filters`, into a folder.

fn main() -> std::io::Result<()> {
    let folder = std::path::PathBuf::from(std::env::args_os().nth(1).unwrap_or_default());
    let seeds = match std::env::args().nth(2).as_deref() {
        Some("filters") => shardfs_fuzz::filtered(),
        _ => shardfs_fuzz::payloads(),
    };
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(number.to_string()), seed)?;
    }
    Ok(())
}
