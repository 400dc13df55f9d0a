//! Profiles of `~/.aws/config` and `~/.aws/credentials`.

use std::{
    collections::HashMap,
    env, fmt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures_util::future::BoxFuture;
use object_store::{CredentialProvider, aws::AwsCredential};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::store::remote::listing::time;

/// How long keys of a file are used before the file is read again.
const REREAD: Duration = Duration::from_secs(60);
/// Seconds before keys run out at which they are renewed.
const EARLY: u64 = 300;

/// The settings of one profile.
pub(crate) struct Profile {
    settings: HashMap<String, String>,
}

/// Returns a variable of the environment that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

impl Profile {
    /// Reads a profile from both files; the one for credentials goes first. `None` if neither has it.
    pub(crate) fn read(name: &str) -> Option<Self> {
        let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
        let file = |named: &str, usual: &str| {
            let path = variable(named).map_or_else(|| home.join(usual), PathBuf::from);
            std::fs::read_to_string(path).unwrap_or_default()
        };
        Self::of(
            name,
            &file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
            &file("AWS_CONFIG_FILE", ".aws/config"),
        )
    }

    fn of(name: &str, credentials: &str, config: &str) -> Option<Self> {
        let credentials = sections(credentials);
        let mut config = sections(config);
        // `default` is written without the word before it, and is taken with it as well.
        let own =
            config.remove(&format!("profile {name}")).or_else(|| config.remove(name).filter(|_| name == "default"));
        let keys = credentials.get(name).cloned();
        if own.is_none() && keys.is_none() {
            return None;
        }
        let mut settings = own.unwrap_or_default();
        let services = settings.get("services").and_then(|name| config.get(&format!("services {name}")));
        let endpoint = settings.get("s3.endpoint_url").or_else(|| services?.get("s3.endpoint_url")).cloned();
        settings.extend(endpoint.map(|endpoint| ("endpoint_url".into(), endpoint)));
        // A key of one file is never used with a secret of the other.
        if let Some(keys) = keys {
            if keys.contains_key("aws_access_key_id") {
                settings.remove("aws_session_token");
            }
            settings.extend(keys);
        }
        Some(Self { settings })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns whether it says where credentials come from.
    pub(crate) fn has_credentials(&self) -> bool {
        ["aws_access_key_id", "credential_process", "role_arn", "sso_session", "sso_start_url"]
            .iter()
            .any(|setting| self.get(setting).is_some())
    }

    /// Returns the current keys, and when they run out.
    fn credential(&self, name: &str) -> Result<(AwsCredential, Option<i64>), String> {
        if let (Some(key), Some(secret)) = (self.get("aws_access_key_id"), self.get("aws_secret_access_key")) {
            let token = self.get("aws_session_token").map(Into::into);
            return Ok((AwsCredential { key_id: key.into(), secret_key: secret.into(), token }, None));
        }
        if let Some(command) = self.get("credential_process") {
            return run(command).map_err(|why| format!("the credential_process of profile {name}: {why}"));
        }
        Err(format!(
            "profile {name} needs the AWS CLI: add to it 'credential_process = aws configure export-credentials \
             --profile NAME --format process', with the NAME of a profile that has the role or the sign-on"
        ))
    }
}

/// The sections of an INI file; settings below another one, which is empty, are called `outer.inner`.
fn sections(text: &str) -> HashMap<String, HashMap<String, String>> {
    let mut all: HashMap<String, HashMap<String, String>> = HashMap::new();
    let (mut section, mut outer) = (None, String::new());
    for line in text.lines() {
        let is_inner = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
            all.entry(name.clone()).or_default();
            section = Some(name);
            continue;
        }
        let (Some(section), Some((name, value))) = (&section, line.split_once('=')) else { continue };
        let (name, value) = (name.trim().to_lowercase(), value.trim());
        // A comment begins after a space.
        let value = value.split(" #").next().unwrap_or(value).split(" ;").next().unwrap_or(value).trim();
        let name = match is_inner && !outer.is_empty() {
            true => format!("{outer}.{name}"),
            false => {
                outer = if value.is_empty() { name.clone() } else { String::new() };
                name
            }
        };
        if let Some(settings) = all.get_mut(section) {
            settings.insert(name, value.to_owned());
        }
    }
    all
}

/// The output of a `credential_process`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

/// Runs a command that prints keys. Nothing of what it prints is repeated.
fn run(command: &str) -> Result<(AwsCredential, Option<i64>), String> {
    let output = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("failed ({}); run it by hand to see why", output.status));
    }
    let printed: Printed =
        serde_json::from_slice(&output.stdout).map_err(|_| "prints no credentials of version 1".to_owned())?;
    if printed.version != 1 {
        return Err(format!("prints credentials of version {}, known is 1", printed.version));
    }
    let expires = printed.expiration.as_deref().and_then(time::parse);
    let Printed { access_key_id: key_id, secret_access_key: secret_key, session_token: token, .. } = printed;
    Ok((AwsCredential { key_id, secret_key, token }, expires))
}

/// The keys of a profile, renewed when they run out or the files change.
pub(crate) struct ProfileKeys {
    name: String,
    known: Mutex<Option<Known>>,
}

struct Known {
    credential: Arc<AwsCredential>,
    read: Instant,
    expires: Option<i64>,
}

impl Known {
    fn is_good(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        match self.expires {
            Some(expires) => u64::try_from(expires).unwrap_or(0) > now + EARLY,
            None => self.read.elapsed() < REREAD,
        }
    }
}

/// Shows no key.
impl fmt::Debug for ProfileKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfileKeys").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ProfileKeys {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), known: Mutex::new(None) }
    }

    async fn get(&self) -> object_store::Result<Arc<AwsCredential>> {
        if let Some(known) = self.known.lock().as_ref().filter(|known| known.is_good()) {
            return Ok(known.credential.clone());
        }
        let name = self.name.clone();
        // Reads files and runs programs, so not on a thread that serves requests.
        let read = tokio::task::spawn_blocking(move || {
            let profile = Profile::read(&name).ok_or_else(|| format!("there is no profile {name}"))?;
            profile.credential(&name)
        });
        let failed = |why: String| object_store::Error::Generic { store: "profile", source: why.into() };
        let (credential, expires) = read.await.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
        let credential = Arc::new(credential);
        *self.known.lock() = Some(Known { credential: credential.clone(), read: Instant::now(), expires });
        Ok(credential)
    }
}

impl CredentialProvider for ProfileKeys {
    type Credential = AwsCredential;

    fn get_credential<'life, 'a>(&'life self) -> BoxFuture<'a, object_store::Result<Arc<AwsCredential>>>
    where
        'life: 'a,
        Self: 'a,
    {
        Box::pin(self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "# comment
[default]
region = eu-west-1
[profile  lab]
region=us-west-2 ; a comment
services = here
s3 =
  max_concurrent_requests = 20
[services here]
s3 =
  endpoint_url = http://127.0.0.1:9000
[profile tool]
credential_process = printf '{\"Version\":1,\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"s\",\"Expiration\":\"2024-02-29T12:34:56Z\"}'
[profile role]
role_arn = arn:aws:iam::1:role/x
";

    #[test]
    fn profiles_of_both_files() {
        let credentials = "[lab]\naws_access_key_id = AK\naws_secret_access_key = geheim#1\n";
        let lab = Profile::of("lab", credentials, CONFIG).unwrap();
        assert_eq!((lab.get("region"), lab.get("endpoint_url")), (Some("us-west-2"), Some("http://127.0.0.1:9000")));
        let (keys, expires) = lab.credential("lab").unwrap();
        assert_eq!((&*keys.key_id, &*keys.secret_key, keys.token, expires), ("AK", "geheim#1", None, None));
        let default = Profile::of("default", credentials, CONFIG).unwrap();
        assert!(!default.has_credentials() && default.get("region") == Some("eu-west-1"));
        assert!(Profile::of("nobody", credentials, CONFIG).is_none());
    }

    #[test]
    fn programs_that_print_keys() {
        let tool = Profile::of("tool", "", CONFIG).unwrap();
        let (keys, expires) = tool.credential("tool").unwrap();
        assert_eq!((&*keys.key_id, &*keys.secret_key, expires), ("a", "s", Some(1_709_210_096)));
        assert!(run("echo geheim; exit 3").unwrap_err().contains("by hand"));
        assert!(!run("echo geheim").unwrap_err().contains("geheim"));
        let role = Profile::of("role", "", CONFIG).unwrap();
        assert!(role.has_credentials() && role.credential("role").unwrap_err().contains("export-credentials"));
    }
}
