//! Writes the seeds of `codecs` into a folder.

fn main() -> std::io::Result<()> {
    let folder = std::path::PathBuf::from(std::env::args_os().nth(1).unwrap_or_default());
    for (number, seed) in shardfs_fuzz::payloads().iter().enumerate() {
        std::fs::write(folder.join(number.to_string()), seed)?;
    }
    Ok(())
}
