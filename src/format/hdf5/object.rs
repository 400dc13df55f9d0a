//! Objects: groups, datasets and committed types, by their headers (sections 3 and 6).

use super::{
    AttributesAt, Dataspace, Datatype, Error, External, Layout, Links, LinksAt, Pipeline, Place, Reader, Result,
    Structure,
    header::{self, Header},
};

/// The content of an object header.
#[derive(Debug, Clone)]
pub struct Object {
    /// Where the header is.
    pub at: Place,
    /// What the object is.
    pub kind: Kind,
    /// Where its attributes are.
    pub attributes: AttributesAt,
}

/// Kinds of objects.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A group, and where its links are.
    Group(LinksAt),
    /// A dataset.
    Dataset(Box<Dataset>),
    /// A committed type.
    Type(Box<Datatype>),
}

/// A dataset.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The type of its elements.
    pub datatype: Datatype,
    /// Its shape.
    pub space: Dataspace,
    /// Where its elements are stored.
    pub layout: Layout,
    /// Filters of its chunks.
    pub pipeline: Pipeline,
    /// The fill value, as an element would be stored; `None` for zeros.
    pub fill: Option<Box<[u8]>>,
    /// Whether elements that were never written are zeros, whatever the fill value is (the fill time "never").
    pub is_never_filled: bool,
    /// Files in which the elements are stored, instead of in this one.
    pub external: Option<External>,
}

impl Object {
    /// Reads the object whose header is at an address.
    ///
    /// # Errors
    /// Damage.
    pub fn read(reader: &Reader<'_>, at: Place) -> Result<Self> {
        let header = header::read(reader, at)?;
        let attributes = AttributesAt::of(reader, &header)?;
        let kind = if let Some(links) = LinksAt::of(reader, &header)? {
            Kind::Group(links)
        } else if header.find(header::LAYOUT).is_some() {
            Kind::Dataset(Box::new(dataset(reader, at, &header)?))
        } else if header.find(header::DATATYPE).is_some() {
            Kind::Type(Box::new(datatype(reader, at, &header)?))
        } else {
            return Err(reader.damaged(at, "an object that is no group, no dataset and no type"));
        };
        Ok(Self { at, kind, attributes })
    }

    /// Returns the dataset, if it is one.
    pub fn dataset(&self) -> Option<&Dataset> {
        if let Kind::Dataset(dataset) = &self.kind { Some(dataset) } else { None }
    }

    /// Returns where its links are, if it is a group.
    pub fn links(&self) -> Option<LinksAt> {
        if let Kind::Group(links) = self.kind { Some(links) } else { None }
    }

    /// Returns the bytes of memory that it takes.
    pub fn memory_usage(&self) -> usize {
        let more = match &self.kind {
            Kind::Group(_) => 0,
            Kind::Dataset(dataset) => dataset.memory_usage(),
            Kind::Type(datatype) => datatype.memory_usage(),
        };
        size_of::<Self>() + more
    }
}

impl Dataset {
    /// Returns what elements have that were never written; `None` for zeros.
    pub fn missing(&self) -> Option<&[u8]> {
        self.fill.as_deref().filter(|_| !self.is_never_filled)
    }

    fn memory_usage(&self) -> usize {
        let dims = 8 * (self.space.most.len() + self.space.dims.as_ref().map_or(0, Vec::len));
        let chunk = if let Layout::Chunked(chunked) = &self.layout { 8 * chunked.chunk.len() } else { 0 };
        let steps: usize = self.pipeline.steps.iter().map(|step| size_of_val(step) + 4 * step.values.len()).sum();
        let fill = self.fill.as_ref().map_or(0, |fill| fill.len());
        let external = self.external.as_ref().map_or(0, External::memory_usage);
        size_of::<Self>() + dims + chunk + steps + fill + external + self.datatype.memory_usage()
    }
}

/// Opens the links of a group ([`Links::open`]).
///
/// # Errors
/// Damage.
pub fn open_links(reader: &Reader<'_>, group: &Object) -> Result<Links> {
    match group.links() {
        Some(stored) => Links::open(reader, group.at, stored),
        None => Err(reader.damaged(group.at, "an object that is no group")),
    }
}

fn datatype(reader: &Reader<'_>, at: Place, header: &Header) -> Result<Datatype> {
    let message = header.find(header::DATATYPE).ok_or_else(|| reader.damaged(at, "a dataset without a type"))?;
    let body = header.body(reader, message)?;
    // A type may be larger in memory than it is stored.
    reader.memory.reserve(16 * body.bytes.len() as u64)?;
    Datatype::parse(&mut body.structure(reader))
}

fn dataset(reader: &Reader<'_>, at: Place, header: &Header) -> Result<Dataset> {
    let body = |kind| header.find(kind).map(|message| header.body(reader, message)).transpose();
    let datatype = datatype(reader, at, header)?;
    let space = body(header::DATASPACE)?.ok_or_else(|| reader.damaged(at, "a dataset without a shape"))?;
    let space = Dataspace::parse(space.structure(reader))?;
    let layout = body(header::LAYOUT)?.ok_or_else(|| reader.damaged(at, "a dataset without a layout"))?;
    let layout = Layout::parse(layout.structure(reader))?;
    let size = space.elements().and_then(|count| count.checked_mul(datatype.size));
    if size.is_none_or(|size| size >= 1 << 62) {
        return Err(reader.damaged(at, "a dataset of more bytes than any file has"));
    }
    let pipeline = body(header::FILTERS)?.map(|filters| Pipeline::parse(filters.structure(reader))).transpose()?;
    if let Layout::Chunked(chunked) = &layout {
        let rank = space.dims.as_ref().map_or(0, Vec::len);
        if chunked.chunk.len() != rank || chunked.element != datatype.size {
            let (axes, bytes, needed) = (chunked.chunk.len(), chunked.element, datatype.size);
            let reason = format!("chunks of {axes} axes and elements of {bytes} bytes; needed are {rank} and {needed}");
            return Err(reader.damaged(at, reason));
        }
    }
    let (fill, is_never_filled) = match (body(header::FILL)?, body(header::OLD_FILL)?) {
        (Some(fill), _) => new_fill(fill.structure(reader))?,
        (None, Some(fill)) => (sized(&mut fill.structure(reader))?, false),
        (None, None) => (None, false),
    };
    let fill = fill.filter(|fill| fill.len() as u64 == datatype.size && fill.iter().any(|byte| *byte != 0));
    let external = body(header::EXTERNAL)?.map(|files| External::parse(files.structure(reader))).transpose()?;
    Ok(Dataset { datatype, space, layout, pipeline: pipeline.unwrap_or_default(), fill, is_never_filled, external })
}

fn sized(message: &mut Structure<'_>) -> Result<Option<Box<[u8]>>> {
    let size = message.u32()?;
    match usize::try_from(size) {
        // Old writers store an impossible size if there is no fill value.
        Ok(size) if size as u64 <= message.left() as u64 => Ok(Some(message.take(size)?.into())),
        _ => Ok(None),
    }
}

/// Returns the fill value, and whether nothing is filled with it.
fn new_fill(mut message: Structure<'_>) -> Result<(Option<Box<[u8]>>, bool)> {
    /// The fill time "never".
    const NEVER: u8 = 1;
    let version = message.version("a fill value", 1..=3)?;
    let (time, is_there) = if version == 3 {
        let flags = message.u8()?;
        (flags >> 2 & 3, flags & 0x20 != 0)
    } else {
        message.skip(1)?;
        let (time, is_defined) = (message.u8()?, message.u8()?);
        (time, version == 1 || is_defined != 0)
    };
    let fill = if is_there { sized(&mut message)? } else { None };
    Ok((fill, time == NEVER))
}

/// Returns the place and the reason if an error is damage. The caller then shows the rest without the damaged part.
///
/// # Errors
/// All others.
pub fn reason_of(error: Error) -> std::result::Result<(u64, String), Error> {
    match error {
        Error::Damaged { place, reason } => Ok((place, reason)),
        error => Err(error),
    }
}
