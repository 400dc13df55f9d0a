//! Which server a URL names, and what proves who asks: from where users of each cloud have it.

use std::sync::Arc;

use object_store::{
    RetryConfig,
    aws::{AmazonS3Builder, AwsCredentialProvider},
};

use super::{
    Location, Options,
    backend::Backend,
    client::client_options,
    location::Scheme,
    object::FetchError,
    profile::{Profile, ProfileKeys, variable},
    s3::S3,
};

/// The server that a URL names, with credentials.
///
/// # Errors
/// What is wrong with the configuration.
pub(super) fn backend(location: &Location, options: &Options) -> Result<Arc<dyn Backend>, FetchError> {
    match location.scheme {
        Scheme::S3 => s3(location, options),
        _ => Err(FetchError::Failed(format!("{}: not a kind of server that is known", location.shown()))),
    }
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
    // Where there is no such service, as on most machines, nobody answers: that is no reason to wait long.
    let retry = RetryConfig {
        max_retries: 2,
        retry_timeout: std::time::Duration::from_secs(5).min(options.timeout),
        ..RetryConfig::default()
    };
    let builder = AmazonS3Builder::from_env()
        .with_bucket_name("bucket")
        .with_region(region)
        .with_skip_signature(false)
        .with_retry(retry)
        .with_client_options(client_options(options)?);
    let built = builder.build().map_err(|error| FetchError::Failed(format!("credentials: {error}")))?;
    Ok(built.credentials().clone())
}
