//! What proves who asks: from where users of each cloud have it.

use std::{env, sync::Arc};

use object_store::aws::{AmazonS3Builder, AwsCredentialProvider};

use super::{
    Location, Options, backend::Backend, client::client_options, location::Scheme, object::FetchError, s3::S3,
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

/// A variable of the environment that is set and not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn s3(location: &Location, options: &Options) -> Result<Arc<dyn Backend>, FetchError> {
    let endpoint = options.endpoint_url.clone();
    let endpoint = endpoint.or_else(|| variable("AWS_ENDPOINT_URL_S3")).or_else(|| variable("AWS_ENDPOINT_URL"));
    let region = options.region.clone();
    let region = region.or_else(|| variable("AWS_REGION")).or_else(|| variable("AWS_DEFAULT_REGION"));
    let region = region.unwrap_or_else(|| "us-east-1".into());
    let credentials = match options.no_sign_request {
        true => None,
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
        .with_client_options(client_options(options)?);
    let built = builder.build().map_err(|error| FetchError::Failed(format!("credentials: {error}")))?;
    Ok(built.credentials().clone())
}
