//! What mount(8) and /etc/fstab say, as this program's own command line.
//!
//! mount(8) calls `mount.shardfs SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS]` (or `mount.fuse.shardfs`); where only
//! libfuse's helper is installed, that calls `shardfs SOURCE MOUNTPOINT -o OPTIONS`. Both become `shardfs mount ...`:
//! what is known as an option of `shardfs mount` needs no other list.

use std::ffi::{OsStr, OsString};

use anyhow::{Context, bail};
use clap::{Arg, Command};

/// Options that concern how and when mount(8) mounts, or that are always true for this filesystem.
const IGNORED: &str = "ro defaults auto noauto user nouser users owner group _netdev nofail suid nosuid dev nodev exec \
    noexec atime noatime diratime nodiratime relatime norelatime strictatime nostrictatime lazytime \
    nolazytime sync async dirsync mand nomand silent loud iversion noiversion nosymfollow symfollow \
    nonempty default_permissions";
/// Such options that have values.
const IGNORED_WITH_VALUE: &str = "fsname subtype comment uhelper helper user context max_read";
/// Options of `shardfs mount` that make no sense in /etc/fstab.
const NOT_HERE: &str = "foreground help version options";

/// How this program was called.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) enum Called {
    /// By a person: the command line as it is.
    Directly(Vec<OsString>),
    /// By mount(8).
    AsHelper {
        /// The command line with the same meaning.
        line: Vec<OsString>,
        /// Whether nothing should really be mounted (`-f`).
        fake: bool,
        /// Whether it asked for a writable mount, as mount(8) does by default.
        writable: bool,
    },
}

/// Checks the name that this program was called by, and translates the arguments of a mount helper.
///
/// # Errors
/// What is wrong with the command line of a helper.
pub(in crate::cli) fn called(args: impl IntoIterator<Item = OsString>, mount: &Command) -> anyhow::Result<Called> {
    let args: Vec<OsString> = args.into_iter().collect();
    let name = args.first().map(|name| std::path::Path::new(name).file_name().unwrap_or(name));
    let is_helper = name.is_some_and(|name| name == "mount.shardfs" || name == "mount.fuse.shardfs");
    // Commands never begin with a slash, and people never omit the command before `-o`.
    let is_by_fuse = args.get(1).is_some_and(|arg| arg.as_encoded_bytes().starts_with(b"/"))
        && args.iter().skip(3).any(|arg| arg == "-o");
    if !is_helper && !is_by_fuse {
        return Ok(Called::Directly(args));
    }
    let mut places = Vec::new();
    let (mut fake, mut sloppy, mut lists) = (false, false, Vec::new());
    let mut rest = args.into_iter().skip(1);
    while let Some(arg) = rest.next() {
        match arg.to_str() {
            Some("-o") => lists.push(rest.next().context("-o needs options after it")?),
            // The type, and the namespace, which mount(8) has entered already.
            Some("-t" | "-N") => drop(rest.next()),
            Some("-h" | "--help" | "-V" | "--version") => {
                return Ok(Called::Directly(vec!["shardfs".into(), "mount".into(), arg]));
            }
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                for flag in flags[1..].chars() {
                    match flag {
                        's' => sloppy = true,
                        'f' => fake = true,
                        'n' | 'v' => {}
                        other => bail!("unknown option -{other}; a mount helper takes -sfnv and -o"),
                    }
                }
            }
            _ => places.push(arg),
        }
    }
    if places.len() != 2 {
        bail!("usage: mount.shardfs SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS]");
    }
    let mut line = vec![OsString::from("shardfs"), "mount".into()];
    let mut writable = false;
    for list in lists {
        let list = list.into_string().map_err(|list| anyhow::anyhow!("options that are not UTF-8: {list:?}"))?;
        let (options, is_writable) = translate(&list, mount, sloppy)?;
        writable |= is_writable;
        line.extend(options);
    }
    line.push("--".into());
    line.extend(places);
    Ok(Called::AsHelper { line, fake, writable })
}

/// Translates the options of one `-o` to long options of `shardfs mount`. Also returns whether `rw` was among them. With
/// `sloppy`, unknown ones are left out.
///
/// # Errors
/// The option that is unknown, lacks its value or has one too many.
pub(in crate::cli) fn translate(list: &str, mount: &Command, sloppy: bool) -> anyhow::Result<(Vec<OsString>, bool)> {
    let (mut options, mut writable) = (Vec::new(), false);
    for option in split(list) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.trim_matches('"'))),
            None => (&*option, None),
        };
        let is_in = |names: &str, name: &str| names.split(' ').any(|known| known == name);
        let is_ignored = is_in(if value.is_some() { IGNORED_WITH_VALUE } else { IGNORED }, name);
        let long = name.replace('_', "-");
        let known = mount.get_arguments().find(|arg| {
            let is_alias = || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&&*long));
            arg.get_long() == Some(&long) || is_alias()
        });
        let known = known.filter(|_| !is_in(NOT_HERE, &long));
        match (name, known, value) {
            _ if is_ignored || name.starts_with("x-") || name.starts_with("X-") => {}
            ("rw", ..) => writable = true,
            ("remount", ..) => bail!("a shardfs can't be changed while it is mounted; take it down and mount it again"),
            (_, Some(arg), value) => options.push(long_option(arg, &long, value)?),
            (_, None, _) if sloppy => {}
            (_, None, _) => bail!("unknown mount option '{name}'; `shardfs mount --help` lists them"),
        }
    }
    Ok((options, writable))
}

fn long_option(arg: &Arg, long: &str, value: Option<&str>) -> anyhow::Result<OsString> {
    let name = long.replace('-', "_");
    Ok(match (arg.get_action().takes_values(), value) {
        (true, Some(value)) => format!("--{long}={value}"),
        (true, None) if arg.get_num_args().is_some_and(|values| values.min_values() == 0) => format!("--{long}"),
        (true, None) => bail!("the mount option '{name}' needs a value: {name}=..."),
        (false, None) => format!("--{long}"),
        (false, Some(_)) => bail!("the mount option '{name}' takes no value"),
    }
    .into())
}

/// Splits options at commas. A value in double quotes may contain commas.
fn split(list: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut quoted = false;
    for c in list.chars() {
        quoted ^= c == '"';
        match options.last_mut() {
            Some(option) if c != ',' || quoted => option.push(c),
            _ => options.push(String::new()),
        }
    }
    options.retain(|option| !option.is_empty());
    options
}

/// Returns a command line of `mount` with its `-o`s translated.
///
/// # Errors
/// As [`translate`], and for `rw`.
pub(in crate::cli) fn expanded(line: &[OsString], lists: &[String], mount: &Command) -> anyhow::Result<Vec<OsString>> {
    // Before the paths, which may come after `--`.
    let at = line.iter().position(|arg| arg == OsStr::new("mount")).map_or(line.len(), |at| at + 1);
    let (options, writable) = translate(&lists.join(","), mount, false)?;
    if writable {
        bail!("-o rw: a shardfs can't be written to; leave it out, or use -o ro");
    }
    let mut expanded = line.to_vec();
    expanded.splice(at..at, options);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn mount() -> Command {
        crate::cli::Cli::command().find_subcommand("mount").unwrap().clone()
    }

    fn translated(list: &str) -> Result<Vec<OsString>, String> {
        translate(list, &mount(), false).map(|(options, _)| options).map_err(|e| e.to_string())
    }

    #[test]
    fn fstab_options_are_options_of_mount() {
        let wanted = words("--cache-size=2G --allow-other --umask=022");
        assert_eq!(translated("ro,_netdev,cache_size=2G,nofail,allow_other,x-systemd.automount,umask=022"), Ok(wanted));
        assert_eq!(translated("cache-size=2G,,"), Ok(words("--cache-size=2G")));
        assert_eq!(translated("log_file=\"/var/log/a,b\""), Ok(words("--log-file=/var/log/a,b")));
        let links = words("--follow-links --follow-links=outside");
        assert_eq!(translated("follow_links,follow_links=outside"), Ok(links));
        assert_eq!(translated("formats=\"kdb,-idv\",ro"), Ok(words("--formats=kdb,-idv")));
        assert_eq!(translated("io_mode=cache"), translated("io-mode=cache"));
        assert_eq!(translated("serve=cache"), Ok(words("--serve=cache")), "the earlier name");
        assert_eq!(translated("user=anna,fsname=x,x-gvfs-hide,comment=hello"), Ok(vec![]));
    }

    #[test]
    fn wrong_options_are_named() {
        assert!(translated("ro,cache_sise=2G").unwrap_err().contains("'cache_sise'"));
        assert!(translated("cache_size").unwrap_err().contains("needs a value"));
        assert!(translated("allow_other=1").unwrap_err().contains("takes no value"));
        assert!(translated("foreground").unwrap_err().contains("'foreground'"));
        assert!(translated("remount,ro").unwrap_err().contains("mount it again"));
        assert_eq!(translate("cache_sise=2G,uid=3", &mount(), true).unwrap().0, words("--uid=3"));
        let line = words("shardfs mount -o uid=3 -- a b");
        assert!(expanded(&line, &["rw".into()], &mount()).is_err());
        // In order: the last one counts.
        let wanted = words("shardfs mount --uid=3 --gid=4 --uid=5 -o uid=3 -- a b");
        assert_eq!(expanded(&line, &["uid=3,gid=4".into(), "uid=5".into()], &mount()).unwrap(), wanted);
    }

    #[test]
    fn a_helper_is_known_by_its_name() {
        let line = words("shardfs mount --uid=3 -- /data /mnt");
        for helper in ["/sbin/mount.shardfs /data /mnt -o rw,uid=3", "mount.fuse.shardfs /data /mnt -n -v -o rw,uid=3"]
        {
            let wanted = Called::AsHelper { line: line.clone(), fake: false, writable: true };
            assert_eq!(called(words(helper), &mount()).unwrap(), wanted);
        }
        let wanted = Called::AsHelper { line, fake: true, writable: false };
        assert_eq!(called(words("mount.shardfs -sf -t x /data /mnt -o ro,uid=3,what"), &mount()).unwrap(), wanted);
        let by_fuse = called(words("/usr/bin/shardfs /data /mnt -o ro,dev"), &mount()).unwrap();
        assert!(matches!(by_fuse, Called::AsHelper { .. }));
        let person = words("shardfs mount /data /mnt -o ro");
        assert_eq!(called(person.clone(), &mount()).unwrap(), Called::Directly(person));
        assert!(called(words("mount.shardfs /data"), &mount()).is_err());
        assert!(called(words("mount.shardfs /data /mnt -q"), &mount()).is_err());
    }
}
