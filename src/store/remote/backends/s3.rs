//! S3, and servers with the same protocol.

use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use object_store::{
    aws::{AwsAuthorizer, AwsCredentialProvider},
    client::HttpRequest,
};
use parking_lot::Mutex;

use super::backend::{Ask, Backend, Collect, Found, Target, request, text, without_credentials};
use crate::store::remote::{
    listing::xml,
    location::{escape_object, escape_value, unescape},
    object::FetchError,
};

/// Keys, and where they come from, as users know it.
pub(crate) struct Keys {
    pub(crate) provider: AwsCredentialProvider,
    pub(crate) origin: String,
}

/// Characters of a key's name that messages show. They tell keys apart.
const SHOWN_OF_KEY: usize = 4;

/// A bucket.
pub(crate) struct S3 {
    /// The address of the bucket, without `/` at its end.
    base: String,
    /// `None`: nothing is signed.
    credentials: Option<Keys>,
    /// The first characters of the key's name that requests are signed with.
    signed_as: Mutex<String>,
    /// The server may name another one.
    region: Mutex<String>,
    /// Whether the address follows from the region, as it does at AWS.
    bucket_at_aws: Option<String>,
    requester_pays: bool,
}

impl S3 {
    pub(crate) fn new(
        bucket: &str,
        endpoint: Option<&str>,
        region: String,
        credentials: Option<Keys>,
        requester_pays: bool,
    ) -> Self {
        let base = endpoint.map_or(String::new(), |endpoint| {
            format!("{}/{}", endpoint.trim_end_matches('/'), escape_value(bucket.as_bytes()))
        });
        let bucket_at_aws = endpoint.is_none().then(|| bucket.to_owned());
        let (region, signed_as) = (Mutex::new(region), Mutex::default());
        Self { base, credentials, signed_as, region, bucket_at_aws, requester_pays }
    }

    fn base(&self) -> String {
        let Some(bucket) = &self.bucket_at_aws else { return self.base.clone() };
        let region = self.region.lock();
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        // The wildcard certificate does not cover a bucket name with a dot.
        match bucket.contains('.') {
            true => format!("https://s3.{region}.{domain}/{bucket}"),
            false => format!("https://{bucket}.s3.{region}.{domain}"),
        }
    }
}

impl Backend for S3 {
    fn request<'a>(&'a self, ask: &'a Ask<'_>) -> BoxFuture<'a, Result<HttpRequest, FetchError>> {
        Box::pin(async move {
            let base = self.base();
            let url = match ask.target {
                Target::Store => format!("{base}/"),
                Target::Object(key) => format!("{base}/{}", escape_object(key)),
                Target::List { prefix, more, most } => {
                    // In the order of the names, as signatures want them.
                    let more = more
                        .map_or(String::new(), |more| format!("continuation-token={}&", escape_value(more.as_bytes())));
                    let prefix = escape_value(prefix);
                    format!("{base}/?{more}delimiter=%2F&encoding-type=url&list-type=2&max-keys={most}&prefix={prefix}")
                }
            };
            let mut request = request(ask, &url)?;
            if let Some(credentials) = &self.credentials {
                let credential = credentials.provider.get_credential().await;
                let credential = credential.map_err(|error| without_credentials(self, &error))?;
                *self.signed_as.lock() = credential.key_id.chars().take(SHOWN_OF_KEY).collect();
                let region = self.region.lock().clone();
                let signer = AwsAuthorizer::new(&credential, "s3", &region).with_request_payer(self.requester_pays);
                signer.try_authorize(&mut request, None).map_err(|error| FetchError::Failed(error.to_string()))?;
            } else if self.requester_pays {
                request.headers_mut().insert("x-amz-request-payer", http::HeaderValue::from_static("requester"));
            }
            Ok(request)
        })
    }

    /// A page of `ListObjectsV2`.
    fn page(&self, _: &[u8], _: &HeaderMap, body: &[u8], to: &mut dyn Collect) -> Result<Option<String>, String> {
        const OBJECT: &str = "Contents";
        const FOLDER: &str = "CommonPrefixes";
        // The token may follow the keys.
        let is_url = |kind: &str| kind.eq_ignore_ascii_case("url");
        let is_escaped = xml::early_leaf(body, "EncodingType").as_deref().is_some_and(is_url);
        let key = |text: &str| match is_escaped {
            // As in a form: a space is `+`.
            true => unescape(text.replace('+', " ").as_bytes()),
            false => text.as_bytes().to_vec(),
        };
        let rest = xml::items(body, &[OBJECT, FOLDER], &mut |kind, item| {
            if kind == FOLDER {
                return item.get("Prefix").map_or(Ok(()), |prefix| to.take(Found::folder(key(prefix))));
            }
            let Some(name) = item.get("Key") else { return Err("an object without a key".into()) };
            to.take(Found::object(key(name), item.state(["Size", "ETag", "LastModified"])))
        })?;
        if rest.get("IsTruncated").is_none() && rest.get("Name").is_none() {
            return Err("the answer is no listing of a bucket".into());
        }
        // The token that was found without parsing the document is only a guess.
        if is_escaped != rest.get("EncodingType").is_some_and(is_url) {
            return Err("the answer does not say how its keys are written".into());
        }
        if rest.get("IsTruncated") != Some("true") {
            return Ok(None);
        }
        let more = rest.get(NEXT).filter(|more| !more.is_empty());
        Ok(Some(more.ok_or("the listing goes on, and the answer does not say where")?.to_owned()))
    }

    fn next_page(&self, _: &HeaderMap, body: &[u8]) -> Option<String> {
        xml::early_leaf(body, NEXT)
    }

    fn was_refused(&self, status: StatusCode, headers: &HeaderMap, code: &str) -> bool {
        if let Some(region) = text(headers, "x-amz-bucket-region") {
            let is_name = !region.is_empty() && region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            let mut known = self.region.lock();
            if is_name && *known != region {
                log::debug!("the region of the bucket is {region}");
                *known = region.to_owned();
                return true;
            }
            // Another request may have learnt the region while this one, signed for the old one, was under way.
            if is_name && matches!(status, StatusCode::MOVED_PERMANENTLY | StatusCode::BAD_REQUEST) {
                return true;
            }
        }
        // The keys may have been renewed meanwhile.
        matches!(code, "ExpiredToken" | "ExpiredTokenException" | "RequestTimeTooSkewed")
    }

    fn remedy(&self) -> &'static str {
        "give keys by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or --profile, or --no-sign-request for a public bucket; \
         listing needs s3:ListBucket, reading s3:GetObject"
    }

    fn refused(&self) -> String {
        let Some(Keys { origin, .. }) = &self.credentials else {
            return "requests without keys are not permitted (s3:ListBucket to list, s3:GetObject to read); give keys by \
                    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or --profile instead of --no-sign-request"
                .into();
        };
        let key = self.signed_as.lock();
        format!(
            "the key {key}… of {origin} was refused; check it, its secret key and its rights (s3:ListBucket to list, \
             s3:GetObject to read), or give another one by --profile"
        )
    }
}

/// Element of a listing with the token for the next page.
const NEXT: &str = "NextContinuationToken";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::remote::backends::backend::{Page, State};

    #[test]
    fn pages_of_a_listing() {
        let body = b"<ListBucketResult><Name>b</Name><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
            <NextContinuationToken>x/y==</NextContinuationToken><Contents><Key>a+b%2Fc%0A%2B</Key><Size>7</Size>\
            <ETag>&quot;e-1&quot;</ETag><LastModified>2024-02-29T12:34:56.000Z</LastModified></Contents>\
            <CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes></ListBucketResult>";
        let mut page = Page { most: 10, ..Page::default() };
        let s3 = S3::new("b", None, "us-east-1".into(), None, false);
        let read = |body: &[u8], page: &mut Page| s3.page(b"", &HeaderMap::new(), body, page);
        let more = read(body, &mut page).unwrap();
        let state = State { size: Some(7), etag: "e-1".into(), modified: Some(1_709_210_096) };
        assert_eq!(page.found, [Found::object("a b/c\n+", state), Found::folder("d/")]);
        assert_eq!(more.as_deref(), Some("x/y=="));
        assert!(read(b"<html><body>no</body></html>", &mut page).is_err());
        let endless = b"<L><Name>b</Name><IsTruncated>true</IsTruncated></L>";
        assert!(read(endless, &mut page).is_err());
    }

    #[test]
    fn requests_under_way_while_the_region_is_learnt_are_all_sent_again() {
        let s3 = S3::new("b", None, "us-east-1".into(), None, false);
        let elsewhere = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-amz-bucket-region"),
            http::HeaderValue::from_static("eu-other-1"),
        )]);
        assert!(s3.was_refused(StatusCode::BAD_REQUEST, &elsewhere, "AuthorizationHeaderMalformed"));
        assert_eq!(s3.base(), "https://b.s3.eu-other-1.amazonaws.com");
        assert!(s3.was_refused(StatusCode::BAD_REQUEST, &elsewhere, "AuthorizationHeaderMalformed"));
        assert!(s3.was_refused(StatusCode::MOVED_PERMANENTLY, &elsewhere, ""));
        assert!(!s3.was_refused(StatusCode::FORBIDDEN, &elsewhere, "AccessDenied"), "the region was right");
    }

    #[test]
    fn addresses() {
        let at = |bucket, endpoint, region: &str| S3::new(bucket, endpoint, region.into(), None, false).base();
        assert_eq!(at("b", None, "eu-west-1"), "https://b.s3.eu-west-1.amazonaws.com");
        assert_eq!(at("b.c", None, "cn-north-1"), "https://s3.cn-north-1.amazonaws.com.cn/b.c");
        assert_eq!(at("b", Some("http://127.0.0.1:8333/"), "x"), "http://127.0.0.1:8333/b");
    }
}
