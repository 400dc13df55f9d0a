//! Which server a URL names, and the credentials for it, from where users of each cloud keep them.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;
use object_store::{
    RetryConfig,
    aws::{AmazonS3Builder, AwsCredentialProvider},
    azure::MicrosoftAzureBuilder,
    gcp::GoogleCloudStorageBuilder,
};
use parking_lot::Mutex;

use super::{
    Location, Options,
    backend::Backend,
    client::client_options,
    cloud::{Azure, Gcs},
    hub::Hub,
    location::Scheme,
    object::FetchError,
    profile::{Profile, ProfileKeys, variable},
    s3::S3,
    web::Web,
};

/// The server that a URL names, with credentials.
///
/// # Errors
/// What is wrong with the configuration.
pub(super) fn backend(location: &Location, options: &Options) -> Result<Arc<dyn Backend>, FetchError> {
    match location.scheme {
        Scheme::S3 => s3(location, options),
        Scheme::Gcs => gcs(location, options),
        Scheme::Azure => azure(location, options),
        Scheme::Http | Scheme::Https => web(location),
        Scheme::HuggingFace => hub(location, options),
    }
}

/// The address of a server that the user names, without `/` at its end.
fn endpoint(options: &Options) -> Option<String> {
    options.endpoint_url.as_ref().map(|endpoint| endpoint.trim_end_matches('/').to_owned())
}

fn gcs(location: &Location, options: &Options) -> Result<Arc<dyn Backend>, FetchError> {
    let named = endpoint(options).or_else(|| {
        let host = variable("STORAGE_EMULATOR_HOST")?;
        Some(if host.contains("://") { host } else { format!("http://{host}") })
    });
    let bucket = &location.store;
    let credentials = match options.no_sign_request {
        true => None,
        false => {
            let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
            let built = builder.with_retry(retry(options)).with_client_options(client_options(options)?).build();
            let built = built.map_err(|error| FetchError::Failed(format!("credentials: {error}")))?;
            Some(built.credentials().clone())
        }
    };
    let store = named.as_ref().map_or_else(|| format!("gs://{bucket}"), |at| format!("gs://{bucket} at {at}"));
    let base = named.unwrap_or_else(|| "https://storage.googleapis.com".into());
    Ok(Arc::new(Gcs { store: store.into(), base, bucket: bucket.clone(), credentials }))
}

fn azure(location: &Location, options: &Options) -> Result<Arc<dyn Backend>, FetchError> {
    let (account, container) = location.store.split_once('/').unwrap_or((&location.store, ""));
    let named = endpoint(options);
    let credentials = match options.no_sign_request || location.query.is_some() {
        true => None,
        false => {
            let builder = MicrosoftAzureBuilder::from_env().with_account(account).with_container_name(container);
            let built = builder.with_retry(retry(options)).with_client_options(client_options(options)?).build();
            let built = built.map_err(|error| FetchError::Failed(format!("credentials: {error}")))?;
            Some(built.credentials().clone())
        }
    };
    let shown = location.at_top();
    let store = named.as_ref().map_or_else(|| shown.clone(), |at| format!("{shown} at {at}"));
    let base = match named {
        // The emulator has the account in the path.
        Some(at) if at.ends_with(&format!("/{account}")) => at,
        Some(at) => format!("{at}/{account}"),
        None => format!("https://{account}.blob.core.windows.net"),
    };
    let base = format!("{base}/{container}");
    let query = location.query.clone();
    Ok(Arc::new(Azure { store: store.into(), base, account: account.to_owned(), credentials, query }))
}

fn web(location: &Location) -> Result<Arc<dyn Backend>, FetchError> {
    let base = location.at_top();
    let authorization = location.login.as_ref().map(|login| secret(&format!("Basic {}", base64(login.as_bytes()))));
    let query = location.query.clone();
    Ok(Arc::new(Web { store: base.clone().into(), base, authorization: authorization.transpose()?, query }))
}

fn hub(location: &Location, options: &Options) -> Result<Arc<dyn Backend>, FetchError> {
    let base = endpoint(options).or_else(|| variable("HF_ENDPOINT")).unwrap_or_else(|| "https://huggingface.co".into());
    let token = variable("HF_TOKEN").or_else(|| {
        let home = variable("HF_HOME")
            .unwrap_or_else(|| format!("{}/.cache/huggingface", variable("HOME").unwrap_or_default()));
        std::fs::read_to_string(format!("{home}/token")).ok().map(|token| token.trim().to_owned())
    });
    let token = token.filter(|token| !token.is_empty() && !options.no_sign_request);
    let authorization = token.map(|token| secret(&format!("Bearer {token}"))).transpose()?;
    let revision = location.revision.clone().unwrap_or_else(|| "main".into());
    let store = format!("{} at {base}", location.at_top());
    Ok(Arc::new(Hub {
        store: store.into(),
        base: base.trim_end_matches('/').to_owned(),
        name: location.store.clone(),
        revision: Mutex::new(revision),
        authorization,
    }))
}

/// A header that is shown nowhere.
fn secret(text: &str) -> Result<HeaderValue, FetchError> {
    let failed = |_| FetchError::Failed("a password or token with characters that no request can have".into());
    let mut value = HeaderValue::from_str(text).map_err(failed)?;
    value.set_sensitive(true);
    Ok(value)
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() { letter.into() } else { '=' });
        }
    }
    text
}

/// Where there is no service that gives credentials, as on most machines, no request is answered.
fn retry(options: &Options) -> RetryConfig {
    RetryConfig { max_retries: 2, retry_timeout: Duration::from_secs(5).min(options.timeout), ..RetryConfig::default() }
}

fn s3(location: &Location, options: &Options) -> Result<Arc<dyn Backend>, FetchError> {
    let chosen = options.profile.clone();
    let name = chosen.clone().or_else(|| variable("AWS_PROFILE")).unwrap_or_else(|| "default".into());
    let profile = Profile::read(&name);
    if let (Some(chosen), None) = (&chosen, &profile) {
        let text = format!("there is no profile {chosen} in ~/.aws/config or ~/.aws/credentials");
        return Err(FetchError::Failed(text));
    }
    let setting = |name: &str| profile.as_ref().and_then(|profile| profile.get(name)).map(str::to_owned);
    let endpoint = options.endpoint_url.clone();
    let endpoint = endpoint.or_else(|| variable("AWS_ENDPOINT_URL_S3")).or_else(|| variable("AWS_ENDPOINT_URL"));
    let endpoint = endpoint.or_else(|| setting("endpoint_url"));
    if let Some(endpoint) = endpoint.as_ref().filter(|endpoint| !endpoint.contains("://") || endpoint.contains('@')) {
        let shown = endpoint.rsplit('@').next().unwrap_or_default();
        return Err(FetchError::Failed(format!("{shown}: not an address of a server; write http://HOST:PORT")));
    }
    let region = options.region.clone();
    let region = region.or_else(|| variable("AWS_REGION")).or_else(|| variable("AWS_DEFAULT_REGION"));
    let region = region.or_else(|| setting("region")).unwrap_or_else(|| "us-east-1".into());
    // As the AWS CLI does it: a profile that was asked for goes before the environment, and another one after it.
    let has_environment = variable("AWS_ACCESS_KEY_ID").is_some() || variable("AWS_WEB_IDENTITY_TOKEN_FILE").is_some();
    let by_profile = profile.as_ref().is_some_and(Profile::has_credentials);
    let credentials: Option<AwsCredentialProvider> = match options.no_sign_request {
        true => None,
        false if by_profile && (chosen.is_some() || !has_environment) => Some(Arc::new(ProfileKeys::new(&name))),
        false => Some(environment(&region, options)?),
    };
    Ok(Arc::new(S3::new(&location.store, endpoint.as_deref(), region, credentials, options.request_payer)))
}

/// Keys of the environment, a web identity, a container's role, the machine's: in this order.
fn environment(region: &str, options: &Options) -> Result<AwsCredentialProvider, FetchError> {
    let builder = AmazonS3Builder::from_env()
        .with_bucket_name("bucket")
        .with_region(region)
        .with_skip_signature(false)
        .with_retry(retry(options))
        .with_client_options(client_options(options)?);
    let built = builder.build().map_err(|error| FetchError::Failed(format!("credentials: {error}")))?;
    Ok(built.credentials().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_rfc_4648() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("\u{ff}~?", "w79+Pw==")];
        for (plain, coded) in cases {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
