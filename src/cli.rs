//! The command line: `commands` has a file for each command.

// `println!` and `eprintln!` panic if they write to a full disk. See output/stdout.rs and output/stderr.rs.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod commands;
mod options;
mod output;
mod system;

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PathBufValueParser, TypedValueParser},
};

use crate::{
    cache, mounts,
    store::remote::{is_url, unknown},
    tree, vfs, video,
};
use commands::{
    cache_folders, cat, cp, doctor, export, find, formats, index, info, ls, mount, pages, refresh, status, umount,
    verify, warm,
};
#[cfg(feature = "serve")]
use commands::{serve, view};
// Also for the commands.
use options::{
    fstab::{self, Called},
    place::{Place, names, pieces},
    remote::{self, RemoteOptions},
    spill,
};
use output::{
    color::{self, ColorOption, paint},
    destination::Destination,
    escape, logging,
    progress::{self, Interrupt},
    stderr::say,
    stdout::{Stdout, buffered, closed_for, stdout},
};
use system::{probe, running};

/// Exit code of a command that failed.
const FAILED: u8 = 1;
/// Exit code of a wrong command line; clap uses the same.
const WRONG: u8 = 2;
/// Exit code that mount(8) expects of a helper that could not mount; for a wrong command line it expects 1.
const NOT_MOUNTED: u8 = 32;

/// The name of a process that decodes videos.
const DECODER: &str = "shardfs-video";

/// Headings in help texts of the options that several commands have. The reference describes the options below each of
/// them once.
const READING: &str = "Reading containers";
/// See [`READING`].
const OUTPUT: &str = "Output";

/// shardfs shows container files as folders of ordinary files.
///
/// Containers are recognised by their content; `shardfs formats` lists the formats. Nothing is unpacked: data is decoded
/// when a program reads it.
#[derive(Debug, Parser)]
#[command(name = "shardfs", version, propagate_version = true, args_override_self = true)]
#[command(after_help = "Example:
  shardfs mount data/ /mnt/shards
  python3 -c \"import numpy as np; print(np.load('/mnt/shards/ep_001.wshard/signal/joint_pos.npy', mmap_mode='r'))\"
  shardfs umount /mnt/shards

Exit codes: 0 success, 1 something failed (the reason is on stderr), 2 a wrong command line.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Variants have no comments: clap would show those instead of the longer texts at the arguments of each command.
#[derive(Debug, Subcommand)]
enum Command {
    Mount(mount::Arguments),
    #[command(visible_alias = "unmount")]
    Umount(umount::Arguments),
    Refresh(refresh::Arguments),
    Status(status::Arguments),
    Doctor(doctor::Arguments),
    Cache(cache_folders::Arguments),
    Ls(ls::Arguments),
    Find(find::Arguments),
    Cat(cat::Arguments),
    Cp(cp::Arguments),
    Export(export::Arguments),
    Info(info::Arguments),
    Index(index::Arguments),
    Verify(verify::Arguments),
    Warm(warm::Arguments),
    Formats(formats::Arguments),
    #[cfg(feature = "serve")]
    Serve(serve::Arguments),
    #[cfg(feature = "serve")]
    View(view::Arguments),
    Completions(pages::CompletionArguments),
    Man(pages::ManArguments),
    /// Print the options of all commands as Markdown
    #[command(hide = true)]
    Reference,
}

/// Options of every command that shows containers.
#[derive(Debug, Args)]
#[command(next_help_heading = READING)]
struct ViewOptions {
    /// When checksums are verified
    #[arg(long, value_enum, default_value_t)]
    verify: cache::Verify,

    /// Do not show tables of containers as Parquet files; they repeat what other files hold
    #[arg(long)]
    no_tables: bool,

    #[command(flatten)]
    spill: spill::SpillArguments,

    #[command(flatten)]
    read: ReadOptions,
}

/// Options of every command that reads containers, also of `verify`.
#[derive(Debug, Args)]
#[command(next_help_heading = READING)]
struct ReadOptions {
    /// Memory for decoded blocks, in bytes or with K, M, G or T, such as 1.5G [default: an eighth of memory, at most 4G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    cache_size: Option<u64>,

    /// Which formats are shown as folders: their names between commas, or with - or + in front to take away from the default
    /// or add to it (`shardfs help formats` lists them)
    #[arg(long, value_name = "LIST", value_parser = tree::choose, allow_hyphen_values = true)]
    formats: Option<tree::Formats>,

    /// Which symbolic links are shown as the files and folders that they point to; without a value: `inside`
    #[arg(long, value_enum, value_name = "WHERE", num_args = 0..=1, require_equals = true, default_value_t,
          default_missing_value = "inside")]
    follow_links: vfs::FollowLinks,

    #[command(flatten)]
    remote: RemoteOptions,
}

impl ViewOptions {
    fn checked(&self) -> vfs::Options {
        let (verify, spill, tables) = (self.verify, self.spill.options(), !self.no_tables);
        vfs::Options { verify, spill, tables, ..self.read.checked() }
    }
}

impl ReadOptions {
    fn checked(&self) -> vfs::Options {
        let defaults = vfs::Options::default();
        vfs::Options {
            cache_size: self.cache_size.unwrap_or(defaults.cache_size),
            follow_links: self.follow_links,
            remote: self.remote.checked(),
            formats: self.formats.unwrap_or(defaults.formats),
            for_others: false,
            ..defaults
        }
    }
}

/// Runs a command. A panic, which has told where it happened, is an error like others for the caller.
pub(crate) fn guarded(run: impl FnOnce() -> ExitCode + std::panic::UnwindSafe) -> ExitCode {
    std::panic::catch_unwind(run).unwrap_or_else(|_| {
        say("shardfs: an error in the program itself; report it with the lines above");
        ExitCode::from(FAILED)
    })
}

/// Runs the command of this process's arguments.
pub(crate) fn run() -> ExitCode {
    let mut words = std::env::args_os();
    match words.next() {
        Some(name) if name == probe::NAME => {
            return finish(probe::run(words).map(|()| ExitCode::SUCCESS), FAILED);
        }
        Some(name) if name == DECODER => return video::run(words.next()),
        _ => {}
    }
    // By this path it is found even if its file was replaced meanwhile.
    video::set_program(video::Program {
        path: "/proc/self/exe".into(),
        name: Some(DECODER.into()),
        arguments: Vec::new(),
        environment: Vec::new(),
    });
    leave_no_core_file();
    // A write beyond a limit on the size of files (setrlimit(2)) fails, and does not end a mount.
    let _ = signal_hook::flag::register(libc::SIGXFSZ, std::sync::Arc::default());
    if let Some(mut again) = remote::without_secrets(&std::env::args_os().collect::<Vec<_>>()) {
        let failed = std::os::unix::process::CommandExt::exec(&mut again);
        return finish(Err(failed.into()), FAILED);
    }
    let mount = mount::Arguments::augment_args(clap::Command::new("mount"));
    match fstab::called(std::env::args_os(), &mount) {
        Ok(Called::Directly(line)) => match parse(&line, &mount) {
            Ok(cli) => finish(execute(&cli, &line), FAILED),
            Err(error) => finish(Err(error), WRONG),
        },
        Ok(Called::AsHelper { line, fake, writable }) => match Cli::try_parse_from(&line) {
            Ok(_) if fake => ExitCode::SUCCESS,
            Ok(cli) => {
                let done = execute(&cli, &line);
                if writable && done.is_ok() {
                    // mount(8) asks for a writable mount by default; like a disk that is
                    // write-protected, this one is mounted all the same.
                    say("shardfs: mounted read-only, as always; the option 'ro' says so without this message");
                }
                finish(done, NOT_MOUNTED)
            }
            Err(error) => finish(Err(error.into()), FAILED),
        },
        Err(error) => finish(Err(error), FAILED),
    }
}

/// Forbids core files where a process may hold keys or tokens, which would be in them: a server, and any command with a
/// URL.
fn leave_no_core_file() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let is_url = |word: &OsString| word.as_encoded_bytes().windows(3).any(|part| part == b"://");
    let mut words = std::env::args_os().skip(1);
    if words.any(|word| word == "serve" || word == "view" || is_url(&word)) {
        // Lowering a limit is always allowed.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    }
}

/// As clap parses, and ends with its message. What it quotes may be a name that a shell has found on a disk.
fn parsed(line: &[OsString]) -> Cli {
    Cli::try_parse_from(line).unwrap_or_else(|error| {
        let text = error.render().to_string();
        if text.chars().all(|c| c == '\n' || escape::is_printable(c)) {
            match error.print() {
                Err(failed) if !error.use_stderr() && failed.kind() != io::ErrorKind::BrokenPipe => {
                    complain(&anyhow::anyhow!("stdout: {failed}"));
                    std::process::exit(FAILED.into());
                }
                _ => std::process::exit(error.exit_code()),
            }
        }
        text.lines().for_each(|line| say(&escape::escaped(line)));
        std::process::exit(error.exit_code())
    })
}

/// The command that a line means, `-o` included. Ends the process where clap would.
fn parse(line: &[OsString], mount: &clap::Command) -> anyhow::Result<Cli> {
    let mut cli = parsed(line);
    if let Command::Mount(mount::Arguments { options, .. }) = &cli.command
        && !options.is_empty()
    {
        cli = parsed(&fstab::expanded(line, options, mount)?);
    }
    Ok(cli)
}

fn execute(cli: &Cli, line: &[OsString]) -> anyhow::Result<ExitCode> {
    match &cli.command {
        // The one command that has more to say than that it failed.
        Command::Verify(arguments) => return verify::run(arguments),
        Command::Mount(arguments) => mount::run(arguments, line),
        Command::Umount(arguments) => umount::run(arguments),
        Command::Refresh(arguments) => refresh::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Cache(arguments) => cache_folders::run(arguments),
        Command::Completions(arguments) => pages::completions(arguments),
        Command::Man(arguments) => pages::man(arguments),
        Command::Reference => pages::reference(),
        Command::Ls(arguments) => ls::run(arguments),
        Command::Find(arguments) => find::run(arguments),
        Command::Cat(arguments) => cat::run(arguments),
        Command::Cp(arguments) => cp::run(arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Info(arguments) => info::run(arguments),
        Command::Index(arguments) => index::run(arguments),
        Command::Warm(arguments) => warm::run(arguments),
        Command::Formats(arguments) => formats::run(arguments),
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => serve::run(arguments),
        #[cfg(feature = "serve")]
        Command::View(arguments) => view::run(arguments),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn finish(done: anyhow::Result<ExitCode>, failed: u8) -> ExitCode {
    match done {
        Ok(code) => code,
        // The reader of our output has seen enough.
        Err(error) if closed_for(&error) == Some(io::ErrorKind::BrokenPipe) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(failed)
        }
    }
}

/// A failure whose reason stands on stderr already.
#[derive(Debug, thiserror::Error)]
#[error("failed")]
struct AlreadyReported;

/// Prints an error on one line of stderr, unless it stands there already.
fn complain(error: &anyhow::Error) {
    if !error.is::<AlreadyReported>() {
        say(&format!("shardfs: {}", one_line(&format!("{error:#}"))));
    }
}

/// Runs `run` for each path, even after one has failed, and prints the errors.
///
/// # Errors
/// That one has failed; at once if nothing can be printed any more.
fn each(paths: &[PathBuf], mut run: impl FnMut(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut all = Ok(());
    for path in paths {
        match run(path) {
            Ok(()) => {}
            Err(error) if closed_for(&error).is_some() => return Err(error),
            Err(error) => {
                complain(&error);
                all = Err(AlreadyReported.into());
            }
        }
    }
    all
}

/// The log of commands that need no mount; `RUST_LOG` overrides.
fn log_to_stderr(level: &str) {
    // Without a file there is nothing to fail.
    let _ = logging::start(None, logging::Level::from_str(level, true).unwrap_or(logging::Level::Warn), None);
}

/// `1 container`, `2 containers`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A message on one line, whatever names it quotes, and without the numbers that Rust puts behind what the system says.
fn one_line(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut line = String::from(parts.next().unwrap_or_default());
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => line.push_str(rest),
            _ => line.extend([" (os error ", part]),
        }
    }
    escape::escaped(&line)
}

/// A place on this machine, where something is written.
fn local() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match is_url(&path) || unknown(&path).is_some() {
        true => Err("nothing is ever written to a server; name a place on this machine"),
        false => Ok(path),
    })
}

/// `512M`, `1.5G` and the like, in powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        unit => return Err(format!("unknown unit '{unit}'; use K, M, G or T")),
    };
    let digits = digits.trim();
    // Whole numbers exactly; parts of a unit to the byte.
    if let Ok(number) = digits.parse::<u64>() {
        return number.checked_mul(1 << unit).ok_or_else(|| "too large".into());
    }
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = digits.parse::<f64>().ok().filter(|number| is_number && number.is_finite());
    let bytes = number.ok_or_else(|| format!("'{digits}' is not a number"))? * (1u64 << unit) as f64;
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err("too large".into()) }
}

/// `90`, `1.5h`, `500ms` and the like: a time, in seconds where nothing else is said.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "ms" => 0.001,
        "" | "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        unit => return Err(format!("unknown unit '{unit}'; use ms, s, m, h or d")),
    };
    let number: f64 = digits.trim().parse().map_err(|_| format!("'{digits}' is not a number"))?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| format!("'{text}' is not a time"))
}

/// A user's number, by number or by name.
fn user(text: &str) -> Result<u32, String> {
    named("passwd", text, "user")
}

/// A group's number, by number or by name.
fn group(text: &str) -> Result<u32, String> {
    named("group", text, "group")
}

/// A number, or the one that a table of the system has for a name. `getent` is asked for names that other services know.
fn named(table: &str, text: &str, what: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return if number == u32::MAX { Err(format!("{number} is no {what}")) } else { Ok(number) };
    }
    let find =
        |text_of_table: &str| named_numbers(text_of_table).find_map(|(name, number)| (name == text).then_some(number));
    let local = find(&std::fs::read_to_string(Path::new("/etc").join(table)).unwrap_or_default());
    let asked = || {
        let output = crate::programs::command("getent").ok()?.args([table, "--", text]).output().ok()?;
        find(&String::from_utf8_lossy(&output.stdout))
    };
    local.or_else(asked).ok_or_else(|| format!("no {what} '{text}' on this machine"))
}

/// The names of a table of the system, the first field of each line, with their numbers, the third.
fn named_numbers(table: &str) -> impl Iterator<Item = (&str, u32)> {
    table.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.trim().parse().ok()?))
    })
}

/// A user's name, or the number where there is none.
fn user_name(number: u32) -> String {
    let table = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = named_numbers(&table).find(|(_, known)| *known == number);
    name.map_or_else(|| format!("user {number}"), |(name, _)| name.to_owned())
}

/// A number of threads.
fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed; leave the option out for the default".into()),
        Ok(number) if number <= 1024 => Ok(number),
        _ => Err(format!("'{text}' is not a number from 1 to 1024")),
    }
}

/// An octal number of permission bits.
fn octal(text: &str) -> Result<u32, String> {
    let bits = u32::from_str_radix(text, 8).map_err(|_| format!("'{text}' is not an octal number"))?;
    if bits <= 0o777 { Ok(bits) } else { Err("only permission bits, 000 to 777".into()) }
}

/// A path made absolute, so that it means the same after the daemon has left its folder.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    if is_url(path) {
        return Ok(path.to_path_buf());
    }
    path.canonicalize().with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use std::io::Write;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// clap puts what follows a flattened group of options below that group's heading, too.
    #[test]
    fn options_below_a_heading_are_those_of_several_commands() {
        let mut cli = Cli::command();
        cli.build();
        let below = |heading: &str, id: &clap::Id| {
            let has = |command: &&clap::Command| {
                command
                    .get_arguments()
                    .any(|option| option.get_id() == id && option.get_help_heading() == Some(heading))
            };
            cli.get_subcommands().filter(has).count()
        };
        for option in cli.get_subcommands().flat_map(clap::Command::get_arguments) {
            if let Some(heading) = option.get_help_heading() {
                assert!(below(heading, option.get_id()) > 1, "{} is below \"{heading}\"", option.get_id());
            }
        }
    }

    #[test]
    fn a_panic_is_an_error() {
        let ended = guarded(|| panic!("bug"));
        assert_eq!(format!("{ended:?}"), format!("{:?}", ExitCode::from(FAILED)));
    }

    #[test]
    fn messages() {
        assert_eq!(one_line("a: No such file (os error 2)"), "a: No such file");
        assert_eq!(one_line("a (os error x) b\n (os error 13): c"), "a (os error x) b\\n: c");
    }

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_paths_are_tried() {
        let mut tried = 0;
        let mut fails = |error: fn() -> anyhow::Error| {
            each(&["a".into(), "b".into()], |_| {
                tried += 1;
                Err(error())
            })
        };
        assert!(fails(|| anyhow::anyhow!("one")).unwrap_err().is::<AlreadyReported>());
        assert!(fails(|| io::Error::from(io::ErrorKind::BrokenPipe).into()).unwrap_err().is::<AlreadyReported>());
        assert_eq!(tried, 4);
        // Without stdout nothing more is tried.
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::BrokenPipe] {
            let ended = each(&["a".into(), "b".into()], |_| {
                tried += 1;
                Ok(writeln!(Stdout(Failing(kind)), "text")?)
            });
            assert_eq!(closed_for(&ended.unwrap_err()), Some(kind));
        }
        assert_eq!(tried, 6);
    }

    #[test]
    fn times() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for wrong in ["", "-1", "nan", "5y", "h", "1h30"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_of_users_and_groups() {
        assert_eq!(user("1000"), Ok(1000));
        assert_eq!((user("root"), group("root")), (Ok(0), Ok(0)));
        assert_eq!((user_name(0), user_name(4_000_000_000)), ("root".into(), "user 4000000000".into()));
        assert_eq!(user("no such user"), Err("no user 'no such user' on this machine".into()));
        assert_eq!((threads("2"), threads("0").is_err(), threads("x").is_err()), (Ok(2), true, true));
    }

    #[test]
    fn sizes() {
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("3K"), Ok(3072));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert_eq!(size("1.5G"), Ok(3 << 29));
        assert_eq!(size("0.5K"), Ok(512));
        assert_eq!(size(&u64::MAX.to_string()), Ok(u64::MAX));
        for wrong in ["2X", "1.2.3", "-1", "1e3", "inf", ".", "99999999.5T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert!(size("").is_err());
        assert!(size("99999999T").is_err());
        assert_eq!(octal("022"), Ok(0o22));
        assert!(octal("1777").is_err());
    }
}
