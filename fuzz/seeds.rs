//! Writes the seeds of a target that has its own into a folder.

fn main() -> std::io::Result<()> {
    let folder = std::path::PathBuf::from(std::env::args_os().nth(1).unwrap_or_default());
    let target = std::env::args().nth(2).unwrap_or_default();
    for (number, seed) in shardfs_fuzz::seeds(&target).unwrap_or_default().iter().enumerate() {
        std::fs::write(folder.join(number.to_string()), seed)?;
    }
    Ok(())
}
