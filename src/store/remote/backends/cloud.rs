//! Azure's containers and Google's buckets.

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, header};
use object_store::{
    azure::{AzureAuthorizer, AzureCredentialProvider},
    client::HttpRequest,
    gcp::GcpCredentialProvider,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::backend::{
    Ask, Backend, Collect, Found, State, Target, etag, request, state, text, token, without_credentials,
};
use crate::store::remote::{
    listing::{
        json::{self, Size},
        time, xml,
    },
    location::{escape_object, escape_value},
    object::FetchError,
};

/// A container of an Azure storage account.
pub(crate) struct Azure {
    /// The address of the container, without `/` at its end.
    pub(crate) base: String,
    pub(crate) account: String,
    /// `None`: nothing is signed.
    pub(crate) credentials: Option<AzureCredentialProvider>,
    /// A signature of the URL.
    pub(crate) query: Option<String>,
}

impl Backend for Azure {
    fn request<'a>(&'a self, ask: &'a Ask<'_>) -> BoxFuture<'a, Result<HttpRequest, FetchError>> {
        Box::pin(async move {
            let mut url = match ask.target {
                Target::Store => self.base.clone(),
                Target::Object(key) => format!("{}/{}", self.base, escape_object(key)),
                Target::List { prefix, more, most } => {
                    let more = token("marker", more);
                    let prefix = escape_value(prefix);
                    let base = &self.base;
                    format!("{base}?restype=container&comp=list&delimiter=%2F&maxresults={most}&prefix={prefix}{more}")
                }
            };
            if let Some(query) = &self.query {
                url.extend([if url.contains('?') { "&" } else { "?" }, query]);
            }
            let mut request = request(ask, &url)?;
            let Some(credentials) = self.credentials.as_ref().filter(|_| self.query.is_none()) else {
                request.headers_mut().insert("x-ms-version", HeaderValue::from_static("2023-11-03"));
                return Ok(request);
            };
            let credential = credentials.get_credential().await.map_err(|error| without_credentials(self, &error))?;
            let signer = AzureAuthorizer::new(&credential, &self.account);
            signer.try_authorize(&mut request).map_err(|error| FetchError::Failed(error.to_string()))?;
            Ok(request)
        })
    }

    /// A page of `List Blobs`.
    fn page(&self, _: &[u8], _: &HeaderMap, body: &[u8], to: &mut dyn Collect) -> Result<Option<String>, String> {
        const OBJECT: &str = "Blob";
        const FOLDER: &str = "BlobPrefix";
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let rest = xml::items(body, &[OBJECT, FOLDER], &mut |kind, item| {
            let Some(name) = item.get("Name") else { return Err("a blob without a name".into()) };
            if kind == FOLDER {
                return to.take(Found::folder(name));
            }
            // With a hierarchical namespace, folders are listed as blobs too.
            if item.get("ResourceType") == Some("directory") || item.get("hdi_isfolder") == Some("true") {
                return Ok(());
            }
            to.take(Found::object(name, item.state(["Content-Length", "Etag", "Last-Modified"])))
        })?;
        if rest.get("EnumerationResults").is_none() {
            return Err("the answer is no listing of a container".into());
        }
        Ok(rest.get(NEXT).filter(|more| !more.is_empty()).map(Into::into))
    }

    fn next_page(&self, _: &HeaderMap, body: &[u8]) -> Option<String> {
        xml::early_leaf(body, NEXT)
    }

    fn remedy(&self) -> &'static str {
        "give a key by AZURE_STORAGE_ACCOUNT_KEY, a token by AZURE_STORAGE_SAS_TOKEN or in the URL, or log in as object_store \
         and the Azure SDKs do; --no-sign-request for a public container. Reading and listing need Storage Blob Data Reader"
    }
}

/// Element of a listing of Azure with the token for the next page.
const NEXT: &str = "NextMarker";

/// A bucket of Google Cloud Storage, by its JSON interface for listings and the XML one for bytes.
pub(crate) struct Gcs {
    /// The address of the service, without `/` at its end.
    pub(crate) base: String,
    pub(crate) bucket: String,
    pub(crate) credentials: Option<GcpCredentialProvider>,
}

impl Backend for Gcs {
    fn request<'a>(&'a self, ask: &'a Ask<'_>) -> BoxFuture<'a, Result<HttpRequest, FetchError>> {
        Box::pin(async move {
            let (base, bucket) = (&self.base, escape_value(self.bucket.as_bytes()));
            let url = match ask.target {
                Target::Store => format!("{base}/{bucket}/"),
                Target::Object(key) => format!("{base}/{bucket}/{}", escape_object(key)),
                Target::List { prefix, more, most } => {
                    let more = token("pageToken", more);
                    let fields = "fields=kind,prefixes,nextPageToken,items(name,size,etag,md5Hash,generation,updated)";
                    let prefix = escape_value(prefix);
                    format!(
                        "{base}/storage/v1/b/{bucket}/o?delimiter=%2F&maxResults={most}&prefix={prefix}&{fields}{more}"
                    )
                }
            };
            let mut request = request(ask, &url)?;
            // The two interfaces give different tags but the same generation.
            if let Some(condition) = request.headers_mut().remove(header::IF_MATCH)
                && let Ok(generation) = HeaderValue::from_bytes(etag(condition.to_str().unwrap_or_default()).as_bytes())
            {
                request.headers_mut().insert("x-goog-if-generation-match", generation);
            }
            if let Some(credentials) = &self.credentials {
                let credential =
                    credentials.get_credential().await.map_err(|error| without_credentials(self, &error))?;
                let bearer = HeaderValue::from_str(&format!("Bearer {}", credential.bearer));
                let mut bearer = bearer.map_err(|_| FetchError::Failed("a token that no request can name".into()))?;
                bearer.set_sensitive(true);
                request.headers_mut().insert(header::AUTHORIZATION, bearer);
            }
            Ok(request)
        })
    }

    /// A page of `objects.list`.
    fn page(&self, _: &[u8], _: &HeaderMap, body: &[u8], to: &mut dyn Collect) -> Result<Option<String>, String> {
        let listed: Listed<'_> = serde_json::from_slice(body).map_err(json::wrong)?;
        if listed.kind.as_deref() != Some("storage#objects") {
            return Err("the answer is no listing of a bucket".into());
        }
        if let Some(prefixes) = listed.prefixes {
            json::each(prefixes.get().as_bytes(), &mut |prefix: String| to.take(Found::folder(prefix)))?;
        }
        if let Some(items) = listed.items {
            json::each(items.get().as_bytes(), &mut |item: Item| {
                let modified = item.updated.as_deref().and_then(time::parse);
                let etag = item.generation.unwrap_or_default().into();
                to.take(Found::object(item.name, State { size: item.size.0, etag, modified }))
            })?;
        }
        Ok(listed.more)
    }

    fn state(&self, headers: &HeaderMap) -> State {
        let state = state(headers);
        State { etag: text(headers, "x-goog-generation").map_or(state.etag, Into::into), ..state }
    }

    fn remedy(&self) -> &'static str {
        "log in with `gcloud auth application-default login`, name a key file by GOOGLE_APPLICATION_CREDENTIALS, or say \
         --no-sign-request for a public bucket; listing needs storage.objects.list, reading storage.objects.get"
    }
}

/// The fields of `objects.list`. Its lists are read element by element.
#[derive(Deserialize)]
struct Listed<'a> {
    kind: Option<String>,
    #[serde(rename = "nextPageToken")]
    more: Option<String>,
    #[serde(borrow)]
    prefixes: Option<&'a RawValue>,
    #[serde(borrow)]
    items: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Item {
    name: String,
    #[serde(default)]
    size: Size,
    generation: Option<String>,
    updated: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::remote::backends::backend::Page;

    #[test]
    fn pages_of_azure() {
        let body = b"\xef\xbb\xbf<?xml version='1.0'?><EnumerationResults><Prefix>a/</Prefix><Blobs><Blob><Name>a/x &amp; y</Name>\
            <Properties><Last-Modified>Thu, 29 Feb 2024 12:34:56 GMT</Last-Modified><Etag>0x8D</Etag><Content-Length>7\
            </Content-Length></Properties></Blob><BlobPrefix><Name>a/d/</Name></BlobPrefix></Blobs><NextMarker>m</NextMarker>\
            </EnumerationResults>";
        let mut page = Page { most: 10, ..Page::default() };
        let azure = Azure { base: String::new(), account: "a".into(), credentials: None, query: None };
        let read = |body: &[u8], page: &mut Page| azure.page(b"", &HeaderMap::new(), body, page);
        let more = read(body, &mut page).unwrap();
        let state = State { size: Some(7), etag: "0x8D".into(), modified: Some(1_709_210_096) };
        assert_eq!(page.found, [Found::object("a/x & y", state), Found::folder("a/d/")]);
        assert_eq!(more.as_deref(), Some("m"));
        assert!(read(b"<html></html>", &mut page).is_err());
    }

    #[test]
    fn pages_of_google() {
        let body = br#"{"kind":"storage#objects","nextPageToken":"t","prefixes":["d/"],"items":[{"name":"x","size":"7",
            "generation":"12","updated":"2024-02-29T12:34:56.000Z"}]}"#;
        let mut page = Page { most: 10, ..Page::default() };
        let gcs = Gcs { base: String::new(), bucket: "b".into(), credentials: None };
        let read = |body: &[u8], page: &mut Page| gcs.page(b"", &HeaderMap::new(), body, page);
        let more = read(body, &mut page).unwrap();
        let state = State { size: Some(7), etag: "12".into(), modified: Some(1_709_210_096) };
        assert_eq!(page.found, [Found::folder("d/"), Found::object("x", state)]);
        assert_eq!(more.as_deref(), Some("t"));
        assert!(read(b"{}", &mut page).is_err() && read(b"<html>", &mut page).is_err());
    }
}
