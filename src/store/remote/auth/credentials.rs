//! Which server a URL names, and the credentials for it, from where users of each cloud keep them.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderValue;
use object_store::{
    RetryConfig,
    aws::{AmazonS3Builder, AwsCredentialProvider},
    azure::MicrosoftAzureBuilder,
    gcp::GoogleCloudStorageBuilder,
};
use parking_lot::Mutex;

use super::{
    address::{Address, hide},
    profile::{Profile, ProfileKeys, variable},
};
use crate::store::remote::{
    Location, Options,
    backends::{
        backend::Backend,
        cloud::{Azure, Gcs},
        hub::Hub,
        s3::{Keys, S3},
        web::Web,
    },
    http::connect::{Connector, Settings},
    location::{Repository, Scheme},
    object::FetchError,
};

/// The name of a store in messages and caches, without any secret, and the server that has it.
type Named = (String, Arc<dyn Backend>);

/// Returns the server that a URL names, with credentials.
///
/// # Errors
/// What is wrong with the configuration.
pub(crate) fn backend(location: &Location, options: &Options) -> Result<Named, FetchError> {
    match location.scheme {
        Scheme::S3 => s3(location, options),
        Scheme::Gcs => gcs(location, options),
        Scheme::Azure => azure(location, options),
        Scheme::Http | Scheme::Https => web(location),
        Scheme::HuggingFace(kind) => hub(kind, location, options),
    }
}

/// Returns the address of a server that the option or one of these variables gives, without `/` at its end.
///
/// # Errors
/// That it is not an address.
fn endpoint(options: &Options, variables: &[&str]) -> Result<Option<String>, FetchError> {
    if let Some(address) = &options.endpoint_url {
        return address.checked("--endpoint-url").map(Some);
    }
    let set = variables.iter().find_map(|name| Some((name, variable(name)?)));
    set.map(|(name, value)| Address::from(value).checked(name)).transpose()
}

fn gcs(location: &Location, options: &Options) -> Result<Named, FetchError> {
    const EMULATOR: &str = "STORAGE_EMULATOR_HOST";
    let named = match endpoint(options, &[])? {
        None => variable(EMULATOR).map(|host| {
            let address = if host.contains("://") { host } else { format!("http://{host}") };
            Address::from(address).checked(EMULATOR)
        }),
        named => named.map(Ok),
    };
    let named = named.transpose()?;
    let bucket = &location.store;
    let credentials = match options.no_sign_request {
        true => None,
        false => {
            let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
            let connector = Connector(Settings::new(options)?);
            let built = builder.with_retry(retry(options)).with_http_connector(connector).build().map_err(wrong)?;
            Some(built.credentials().clone())
        }
    };
    let store = at(format!("gs://{bucket}"), named.as_ref());
    let base = named.unwrap_or_else(|| "https://storage.googleapis.com".into());
    Ok((store, Arc::new(Gcs { base, bucket: bucket.clone(), credentials })))
}

fn azure(location: &Location, options: &Options) -> Result<Named, FetchError> {
    let (account, container) = location.store.split_once('/').unwrap_or((&location.store, ""));
    let named = endpoint(options, &[])?;
    let credentials = match options.no_sign_request || location.query.is_some() {
        true => None,
        false => {
            let builder = MicrosoftAzureBuilder::from_env().with_account(account).with_container_name(container);
            let connector = Connector(Settings::new(options)?);
            let built = builder.with_retry(retry(options)).with_http_connector(connector).build().map_err(wrong)?;
            Some(built.credentials().clone())
        }
    };
    let store = at(location.at_top(), named.as_ref());
    let base = match named {
        // The emulator has the account in the path.
        Some(at) if at.ends_with(&format!("/{account}")) => at,
        Some(at) => format!("{at}/{account}"),
        None => format!("https://{account}.blob.core.windows.net"),
    };
    let base = format!("{base}/{container}");
    let query = location.query.clone();
    Ok((store, Arc::new(Azure { base, account: account.to_owned(), credentials, query })))
}

fn web(location: &Location) -> Result<Named, FetchError> {
    let base = location.at_top();
    let authorization = location.login.as_ref().map(|login| secret(&format!("Basic {}", STANDARD.encode(login))));
    let query = location.query.clone();
    Ok((base.clone(), Arc::new(Web { base, authorization: authorization.transpose()?, query })))
}

fn hub(kind: Repository, location: &Location, options: &Options) -> Result<Named, FetchError> {
    let base = endpoint(options, &["HF_ENDPOINT"])?.unwrap_or_else(|| "https://huggingface.co".into());
    let set = variable("HF_TOKEN").map(|token| (token, "HF_TOKEN".to_owned()));
    let token = set.or_else(|| {
        let home = variable("HF_HOME")
            .unwrap_or_else(|| format!("{}/.cache/huggingface", variable("HOME").unwrap_or_default()));
        let file = format!("{home}/token");
        Some((std::fs::read_to_string(&file).ok()?.trim().to_owned(), file))
    });
    let token = token.filter(|(token, _)| !token.is_empty() && !options.no_sign_request);
    let (token, origin) = token.unzip();
    let authorization = token.map(|token| secret(&format!("Bearer {token}"))).transpose()?;
    let revision = location.revision.clone().unwrap_or_else(|| "main".into());
    let store = format!("{} at {base}", location.at_top());
    let (name, revision) = (location.store.clone(), Mutex::new(revision));
    Ok((store, Arc::new(Hub { base, kind, name, revision, authorization, origin })))
}

/// Returns the name of a store that is at its cloud's own address or another one.
fn at(store: String, address: Option<&String>) -> String {
    match address {
        Some(at) => format!("{store} at {at}"),
        None => store,
    }
}

/// Returns a header that is never shown.
fn secret(text: &str) -> Result<HeaderValue, FetchError> {
    let failed = |_| FetchError::Failed("a password or token with characters that no request can have".into());
    let mut value = HeaderValue::from_str(text).map_err(failed)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns an error about credentials in the environment.
fn wrong(error: object_store::Error) -> FetchError {
    FetchError::Failed(format!("credentials: {}", hide(&error.to_string())))
}

/// Few retries, because most machines have no service that gives credentials.
fn retry(options: &Options) -> RetryConfig {
    RetryConfig { max_retries: 2, retry_timeout: Duration::from_secs(5).min(options.timeout), ..RetryConfig::default() }
}

fn s3(location: &Location, options: &Options) -> Result<Named, FetchError> {
    let chosen = options.profile.clone();
    let name = chosen.clone().or_else(|| variable("AWS_PROFILE")).unwrap_or_else(|| "default".into());
    let profile = Profile::read(&name);
    if let (Some(chosen), None) = (&chosen, &profile) {
        let text = format!("there is no profile {chosen} in ~/.aws/config or ~/.aws/credentials");
        return Err(FetchError::Failed(text));
    }
    let setting = |name: &str| profile.as_ref().and_then(|profile| profile.get(name)).map(str::to_owned);
    let endpoint = match endpoint(options, &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])? {
        None => {
            setting("endpoint_url").map(|at| Address::from(at).checked("endpoint_url of the profile")).transpose()?
        }
        endpoint => endpoint,
    };
    let region = options.region.clone();
    let region = region.or_else(|| variable("AWS_REGION")).or_else(|| variable("AWS_DEFAULT_REGION"));
    let region = region.or_else(|| setting("region")).unwrap_or_else(|| "us-east-1".into());
    // As in the AWS CLI: a profile that the user names goes before the environment, the default one after it.
    let has_environment = variable("AWS_ACCESS_KEY_ID").is_some() || variable("AWS_WEB_IDENTITY_TOKEN_FILE").is_some();
    let by_profile = profile.as_ref().is_some_and(Profile::has_credentials);
    let credentials = match options.no_sign_request {
        true => None,
        false if by_profile && (chosen.is_some() || !has_environment) => {
            Some(Keys { provider: Arc::new(ProfileKeys::new(&name)), origin: format!("the profile {name}") })
        }
        false => Some(Keys { provider: environment(&region, options)?, origin: origin().into() }),
    };
    let store = at(format!("s3://{}", location.store), endpoint.as_ref());
    let s3 = S3::new(&location.store, endpoint.as_deref(), region, credentials, options.request_payer);
    Ok((store, Arc::new(s3)))
}

/// Returns which of the sources of [`environment`] is used.
fn origin() -> &'static str {
    const NAMED: [&str; 4] = [
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ];
    NAMED.into_iter().find(|name| variable(name).is_some()).unwrap_or("this machine's role")
}

/// Returns the first of: keys of the environment, a web identity, a container's role, the machine's role.
fn environment(region: &str, options: &Options) -> Result<AwsCredentialProvider, FetchError> {
    const PAIR: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    if let [Some(_), None] | [None, Some(_)] = PAIR.map(variable) {
        let [id, secret] = PAIR;
        return Err(FetchError::Failed(format!("only one of {id} and {secret} is set; set both, or give --profile")));
    }
    let builder = AmazonS3Builder::from_env()
        .with_bucket_name("bucket")
        .with_region(region)
        .with_skip_signature(false)
        .with_retry(retry(options))
        .with_http_connector(Connector(Settings::new(options)?));
    Ok(builder.build().map_err(wrong)?.credentials().clone())
}
