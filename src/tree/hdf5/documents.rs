//! The JSON documents of a file: attributes of objects, and `container.json`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::{
    HDF5, Hdf5,
    form::{Form, FormKind, Plain, Texts},
    node::Place,
    store::{Damage, Described, Held, Store},
    values::{Values, has_texts},
    walk::LeftOut,
};
use crate::{
    cache::Buffer,
    format::{
        DType,
        hdf5::{AttributesAt, Class as TypeClass, Dataset, Datatype, Kind, Layout, Target, attribute::Attribute},
    },
    limits,
    source::Memory,
    tree::{
        ItemInfo, ObjectField, attributes,
        describe::{self, Item},
        memory::WorkingMemory,
        names, overview,
        tables::{Described as DescribedTable, SUFFIX, described_tables},
    },
    view::{
        Array, Fault, ReadContext, View,
        attributes::{Attributes, INLINE, Value, key},
    },
};

/// Most bytes of the values of one object's attributes.
const ATTRIBUTES: u64 = 16 << 20;

/// The keys of `items` that only HDF5 has.
#[derive(Debug, Serialize)]
struct Own {
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks: Option<Vec<u64>>,
    #[serde(rename = "enum", skip_serializing_if = "Option::is_none")]
    names: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fill: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Returns the array of an attribute, if it gets a file of its own.
fn large(attribute: &Attribute) -> Option<Array> {
    let stored = attribute.value.as_ref().ok()?;
    let elements = stored.space.elements()?;
    let dims = stored.space.dims.as_deref()?;
    let plain = Plain::of_type(&stored.datatype).filter(|_| elements > INLINE)?;
    Some(super::elements::inline(&plain, dims, &stored.data))
}

impl Hdf5 {
    /// Returns the object at a place.
    pub(super) fn object_at(&self, context: &ReadContext, place: Place) -> Result<Option<Arc<Held<Described>>>, Fault> {
        let Some((group, number)) = self.at(context, place)? else { return Ok(None) };
        let Some(number) = number else { return self.store.object(context, group.at).map(Some) };
        match group.link(&self.store, context, number)?.map(|link| link.target) {
            Some(Target::Hard(at)) => self.store.object(context, at).map(Some),
            _ => Ok(None),
        }
    }

    fn attributes_at(&self, context: &ReadContext, place: Place) -> Result<Option<Arc<Held<Vec<Attribute>>>>, Fault> {
        let Some(object) = self.object_at(context, place)? else { return Ok(None) };
        let Ok(described) = &object.found else { return Ok(None) };
        if described.object.attributes == AttributesAt::Nowhere {
            return Ok(None);
        }
        self.store.attributes(context, &described.object).map(Some)
    }

    /// Returns whether an object has attributes with a file of their own.
    pub(super) fn has_large(&self, context: &ReadContext, place: Place) -> Result<bool, Fault> {
        let Some(object) = self.object_at(context, place)? else { return Ok(false) };
        self.object_has_large(context, &object)
    }

    /// Does the same for an object that was read.
    pub(super) fn object_has_large(&self, context: &ReadContext, object: &Held<Described>) -> Result<bool, Fault> {
        let Ok(described) = &object.found else { return Ok(false) };
        match described.object.attributes {
            // Each element has at least one byte, so a short message has no large array.
            AttributesAt::Messages(longest) if u64::from(longest) <= INLINE => return Ok(false),
            AttributesAt::Messages(_) | AttributesAt::Dense(..) => {}
            AttributesAt::Nowhere => return Ok(false),
        }
        let attributes = self.store.attributes(context, &described.object)?;
        let Ok(all) = &attributes.found else { return Ok(false) };
        Ok(all.iter().any(|attribute| large(attribute).is_some()))
    }

    /// Returns the large attributes of an object: the number of each, the name of its file, and the array.
    pub(super) fn large_attributes(
        &self,
        context: &ReadContext,
        place: Place,
    ) -> Result<Vec<(u64, String, Array)>, Fault> {
        let Some(attributes) = self.attributes_at(context, place)? else { return Ok(Vec::new()) };
        let Ok(all) = &attributes.found else { return Ok(Vec::new()) };
        let found = (0..).zip(all).filter_map(|(number, attribute)| {
            Some((number, attributes::array_name(&attribute.name), large(attribute)?))
        });
        Ok(found.collect())
    }

    /// Returns the file of an object's attributes.
    pub(super) fn attributes_document(&self, context: &ReadContext, place: Place) -> Result<View, Fault> {
        if let Some(document) = Store::document(context, place.0) {
            return Ok(View::shared(document));
        }
        context.may_work()?;
        let Some(attributes) = self.attributes_at(context, place)? else { return Ok(View::default()) };
        let all = match &attributes.found {
            Ok(all) => all,
            Err(damage) => return Ok(super::elements::Missing::of(&damage.fault(), 1)),
        };
        let folder = if self.has_large(context, place)? {
            let Some((group, number)) = self.at(context, place)? else { return Ok(View::default()) };
            let inner = match number {
                None => Some(group.clone()),
                Some(number) => self.child_at(context, &group, number)?,
            };
            match (inner, number) {
                (Some(inner), _) => self.arrays_folder(context, &inner, None)?,
                (None, Some(number)) => {
                    let link = group.link(&self.store, context, number)?;
                    self.arrays_folder(context, &group, link.as_ref())?
                }
                (None, None) => String::new(),
            }
        } else {
            String::new()
        };
        let memory = WorkingMemory::held(&context.cache);
        let shown = self.shown_attributes(context, place, all, &memory)?;
        let file = |number: usize| {
            let name = all.get(number).map_or_else(String::new, |attribute| attributes::array_name(&attribute.name));
            format!("{folder}/{name}")
        };
        let document = shown.document(context, &memory, &file)?;
        drop(shown);
        let room = memory.keep(document.len() as u64)?;
        Ok(View::shared(Store::keep_document(context, place.0, document.with_room(room))))
    }

    /// Returns attributes as they are shown. Reports those that cannot be read.
    fn shown_attributes(
        &self,
        context: &ReadContext,
        place: Place,
        all: &[Attribute],
        memory: &WorkingMemory<'_>,
    ) -> Result<Attributes, Fault> {
        let mut values = Values::new(&self.store, context, memory);
        let (mut shown, mut left) = (Vec::with_capacity(all.len()), ATTRIBUTES);
        for attribute in all {
            let mut place_of = None;
            let value = match &attribute.value {
                Err(unread) => {
                    place_of = Some(unread.place);
                    Value::Failed(unread.reason.as_str().into())
                }
                Ok(stored) if large(attribute).is_none() && stored.data.len() as u64 > left => {
                    Value::Failed("the attributes have more than 16 MiB".into())
                }
                Ok(stored) => {
                    left = left.saturating_sub(if large(attribute).is_some() { 0 } else { stored.data.len() as u64 });
                    match values.attribute(stored) {
                        Ok(value) => value,
                        Err(fault) if fault.error.is_damage() => {
                            place_of = Some(fault.offset).filter(|at| *at > 0);
                            Value::Failed(fault.error.to_string().into())
                        }
                        Err(fault) => return Err(fault),
                    }
                }
            };
            if let Value::Failed(reason) = &value {
                let name = String::from_utf8_lossy(&attribute.name);
                self.note(place, place_of, format!("the attribute {name:?} cannot be read: {reason}"));
            }
            shown.push((attribute.name.clone(), value));
        }
        Ok(shown.into_iter().collect())
    }

    /// Returns the attributes of the object at a place, with their types.
    pub(super) fn typed_attributes(
        &self,
        context: &ReadContext,
        place: Place,
        memory: &WorkingMemory<'_>,
    ) -> Result<Option<Attributes>, Fault> {
        let Some(attributes) = self.attributes_at(context, place)? else { return Ok(None) };
        let all = attributes.found.as_ref().map_err(Damage::fault)?;
        self.shown_attributes(context, place, all, memory).map(Some)
    }

    /// Returns the description of a dataset, without reading its elements.
    pub(super) fn info(&self, described: &Described) -> ItemInfo {
        let (Some(dataset), Some(form)) = (described.object.dataset(), &described.form) else {
            return ItemInfo::default();
        };
        let dtype = match &form.kind {
            FormKind::Plain(plain) => Some(plain.element.clone()),
            FormKind::Null => Plain::of_type(&dataset.datatype).map(|plain| plain.element),
            _ => None,
        };
        let chunks = if let Layout::Chunked(chunked) = &dataset.layout { Some(chunked.chunk.clone()) } else { None };
        ItemInfo {
            dtype,
            stored_type: word(dataset, &form.kind),
            fields: if let FormKind::Rows = form.kind { fields(&dataset.datatype) } else { None },
            shape: dataset.space.dims.clone(),
            chunks,
            codec: Some(dataset.pipeline.name().into()),
            stored_size: stored_size(dataset, form),
            ..ItemInfo::default()
        }
    }

    /// Returns the fill value of a dataset as it would be shown: the bytes of an element, or a text. `None` for zeros, and
    /// if it cannot be read.
    pub(super) fn fill(&self, context: &ReadContext, described: &Described) -> Result<Option<Box<[u8]>>, Fault> {
        let (Some(dataset), Some(form)) = (described.object.dataset(), &described.form) else { return Ok(None) };
        let Some(stored) = &dataset.fill else { return Ok(None) };
        match &form.kind {
            FormKind::Plain(plain) => Ok(Some(super::elements::shown(plain, stored).into())),
            FormKind::Text(_) | FormKind::Texts => {
                let memory = WorkingMemory::of_reader(context);
                match Values::new(&self.store, context, &memory).element(&dataset.datatype, stored) {
                    Ok(Value::Text(text)) => Ok(Some(text)),
                    Ok(_) => Ok(None),
                    Err(fault) if fault.error.is_damage() => Ok(None),
                    Err(fault) => Err(fault),
                }
            }
            _ => Ok(None),
        }
    }

    /// Returns a description with the shape of chunks after the filters.
    fn info_with_chunks(&self, described: &Described) -> ItemInfo {
        let info = self.info(described);
        let Some(Layout::Chunked(chunked)) = described.object.dataset().map(|dataset| &dataset.layout) else {
            return info;
        };
        let axes: Vec<String> = chunked.chunk.iter().map(u64::to_string).collect();
        let codec = info.codec.as_deref().unwrap_or("none");
        ItemInfo { codec: Some(format!("{codec} [{}]", axes.join(",")).into()), ..info }
    }

    /// Returns the path of the first file of an object in its folder.
    fn first_file(&self, folder: &str, name: &[u8], described: Option<&Described>) -> Option<String> {
        let of = |suffix| Some(names::file(name, suffix, 1));
        let file = match described.map(|described| described.form.as_ref().map(|form| &form.kind)) {
            None | Some(Some(FormKind::Stored(_) | FormKind::Broken(_) | FormKind::Null)) => of(".bin"),
            Some(Some(FormKind::Plain(_))) => of(".npy"),
            Some(Some(FormKind::Text(_))) => of(".txt"),
            Some(Some(FormKind::Texts | FormKind::Rows)) => of(".jsonl"),
            Some(Some(FormKind::Sequence(_))) => Some(names::folder(name, &names::RESERVED, 1)),
            Some(None) => None,
        }?;
        Some(if folder.is_empty() { file } else { format!("{folder}/{file}") })
    }

    /// Returns `container.json`.
    pub(super) fn describe(&self, context: &ReadContext, memory: &dyn Memory) -> Result<Buffer, Fault> {
        let walk = self.store.walk(context)?;
        let superblock = &self.store.superblock;
        let mut front = Map::new();
        front.insert("format".into(), HDF5.name.into());
        front.insert("version".into(), superblock.version.into());
        front.insert("user_block".into(), superblock.sizes.base.into());
        if superblock.is_writing {
            front.insert("writing".into(), true.into());
        }
        let left_out = self.left_out_links(context, &walk.outside)?;
        if !left_out.is_empty() {
            front.insert("links_left_out".into(), left_out.into());
        }
        if walk.items().count() > limits::DESCRIBED {
            front.insert("items_left_out".into(), true.into());
        }
        let mut items = Vec::new();
        for (number, at) in walk.items().take(limits::DESCRIBED) {
            let object = self.store.object(context, at)?;
            let (folder, name) = walk.place(number);
            let path = self.first_file(&folder, name, object.found.as_ref().ok());
            let form = object.found.as_ref().ok().and_then(|described| described.form.as_ref());
            let described = 8 * form.map_or(0, Form::memory_usage) as u64;
            memory.reserve(1024 + described + path.as_ref().map_or(0, |path| 4 * path.len() as u64))?;
            let item = self.item(context, memory, &walk.path(number), path, &object.found)?;
            items.push(item);
        }
        describe::document(&front, items.iter(), &self.described_tables(context, memory)?, memory)
    }

    fn item(
        &self,
        context: &ReadContext,
        memory: &dyn Memory,
        name: &[u8],
        path: Option<String>,
        found: &Result<Described, Damage>,
    ) -> Result<Json, Fault> {
        let mut own = Own { layout: None, chunks: None, names: None, fill: None, error: None };
        let to_json = |item: Item<'_, Own>| serde_json::to_value(item).unwrap_or_default();
        let described = match found {
            Ok(described) => described,
            Err(damage) => {
                own.error = Some(damage.reason.to_string());
                return Ok(to_json(Item::of(name, path, None, ItemInfo::default(), own)));
            }
        };
        let (Kind::Dataset(dataset), Some(form)) = (&described.object.kind, &described.form) else {
            let item = Item::of(name, path, None, ItemInfo::default(), own);
            return Ok(to_json(item.with_names(Some("type".into()), "none".into())));
        };
        own.layout = Some(match (&dataset.layout, dataset.external.is_some()) {
            (_, true) => "external",
            (Layout::Compact(..), _) => "compact",
            (Layout::Contiguous(..), _) => "contiguous",
            (Layout::Chunked(_), _) => "chunked",
            (Layout::Virtual(..), _) => "virtual",
        });
        if let Layout::Chunked(chunked) = &dataset.layout {
            own.chunks = Some(chunked.chunk.clone());
        }
        own.names = enumeration(&dataset.datatype, memory)?;
        if let FormKind::Broken(damage) = &form.kind {
            own.error = Some(damage.reason.to_string());
        }
        if let (FormKind::Plain(_), Some(fill)) = (&form.kind, dataset.missing()) {
            let mut values = Values::new(&self.store, context, memory);
            let value = values.element(&dataset.datatype, fill)?.line(context, memory)?;
            memory.reserve((value.len() as u64).saturating_mul(limits::JSON_ROOM))?;
            own.fill = serde_json::from_slice(&value).ok();
        }
        let info = self.info(described);
        let codec = dataset.pipeline.name();
        let checksum = codec.split('+').any(|name| name == "fletcher32").then_some("fletcher32");
        let size = element_size(dataset, form).map(|size| size.saturating_mul(form.elements));
        let item = Item::of(name, path, size, info, own).with_names(Some(type_name(dataset, form)), codec.into());
        Ok(to_json(item.with_checksum(checksum)))
    }

    /// Returns the description of tables.
    fn described_tables(&self, context: &ReadContext, memory: &dyn Memory) -> Result<Map<String, Json>, Fault> {
        let walk = self.store.walk(context)?;
        let mut tables = self.profile_descriptions(context, memory)?;
        for (number, at) in walk.items().take(limits::DESCRIBED) {
            let object = self.store.object(context, at)?;
            let Ok(described) = &object.found else { continue };
            let Some(columns) = self.compound_columns(context, described, memory)? else { continue };
            let (folder, name) = walk.place(number);
            let file = names::file(name, SUFFIX, 1);
            let path = if folder.is_empty() { file } else { format!("{folder}/{file}") };
            tables.push(DescribedTable::of(path, Ok(columns))?);
        }
        Ok(described_tables(tables))
    }

    /// Returns links that are not shown.
    fn left_out_links(&self, context: &ReadContext, outside: &[LeftOut]) -> Result<Vec<Json>, Fault> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut left = Vec::new();
        for link in outside {
            let (file, target) = match &link.target {
                Some((file, target)) if super::soft::outside(self, context, file, target)?.is_some() => continue,
                Some((file, target)) => (json!(text(file)), json!(text(target))),
                None => (Json::Null, Json::Null),
            };
            left.push(json!({"name": text(&link.name), "file": file, "target": target}));
        }
        Ok(left)
    }

    /// Returns the overview that `shardfs info` and web pages show.
    pub(super) fn items_overview(&self, context: &ReadContext) -> Result<overview::Overview, Fault> {
        let walk = self.store.walk(context)?;
        let superblock = &self.store.superblock;
        let mut front = Map::new();
        front.insert("version".into(), superblock.version.into());
        if superblock.sizes.base > 0 {
            front.insert("user_block".into(), superblock.sizes.base.into());
        }
        let mut items = Vec::new();
        for (number, at) in walk.items().take(limits::DESCRIBED) {
            let object = self.store.object(context, at)?;
            let (folder, name) = walk.place(number);
            let described = object.found.as_ref().ok();
            let Some(path) = self.first_file(&folder, name, described) else { continue };
            items.push(overview::Item {
                path,
                info: described.map_or_else(ItemInfo::default, |described| self.info_with_chunks(described)),
                size: described.and_then(|described| {
                    let (dataset, form) = (described.object.dataset()?, described.form.as_ref()?);
                    Some(element_size(dataset, form)?.saturating_mul(form.elements))
                }),
                error: object.found.as_ref().err().map(|damage| damage.reason.to_string()),
                ..overview::Item::default()
            });
        }
        Ok(overview::Overview { format: HDF5.name, contents: overview::Contents::Items { front, items } })
    }
}

/// Returns the names of the numbers of an enumeration; of a record, those of its members. `None` if there are none.
pub(super) fn enumeration(datatype: &Datatype, memory: &dyn Memory) -> Result<Option<Json>, Fault> {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let mut found = Map::new();
    match &datatype.class {
        TypeClass::Enum(..) if !datatype.is_bool() => {
            memory.reserve((datatype.memory_usage() as u64).saturating_mul(4))?;
            for (name, number) in datatype.names().unwrap_or_default() {
                let number = i64::try_from(number).map_or_else(|_| json!(number as u64), |number| json!(number));
                found.insert(text(name), number);
            }
        }
        TypeClass::Array(_, base) | TypeClass::Sequence(base) => return enumeration(base, memory),
        TypeClass::Compound(members) => {
            for member in members {
                if let Some(names) = enumeration(&member.datatype, memory)? {
                    found.insert(text(&member.name), names);
                }
            }
        }
        _ => {}
    }
    Ok((!found.is_empty()).then_some(Json::Object(found)))
}

/// Returns the bytes that the elements of a dataset take in the file, if that is known without its index.
fn stored_size(dataset: &Dataset, form: &Form) -> Option<u64> {
    match &dataset.layout {
        _ if dataset.external.is_some() => None,
        Layout::Compact(_, size) => Some(*size),
        Layout::Contiguous(None, _) => Some(0),
        Layout::Contiguous(Some(_), _) => Some(form.elements.saturating_mul(dataset.datatype.size)),
        Layout::Chunked(_) | Layout::Virtual(..) => None,
    }
}

/// Returns the bytes of an element as it is shown; `None` for those of varying length.
fn element_size(dataset: &Dataset, form: &Form) -> Option<u64> {
    match &form.kind {
        FormKind::Plain(plain) => Some(plain.shown()),
        FormKind::Text(Texts::Fixed(..)) | FormKind::Stored(_) => Some(dataset.datatype.size),
        _ => None,
    }
}

/// Returns the type of a dataset in `container.json`.
fn type_name(dataset: &Dataset, form: &Form) -> Json {
    let plain = |plain: &Plain| match plain.name {
        Some(name) => json!(name),
        None => plain.element.descr_json(),
    };
    let array = |of: &Plain| match of.element.plain() {
        Some(DType::Bytes(width)) => json!(format!("text[{width}]")),
        _ => plain(of),
    };
    match &form.kind {
        FormKind::Plain(of) => array(of),
        FormKind::Text(Texts::Fixed(width, _)) => json!(format!("text[{width}]")),
        FormKind::Text(Texts::Varying) | FormKind::Texts => json!("text"),
        FormKind::Sequence(items) => match plain(items) {
            Json::String(name) => json!(format!("sequence of {name}")),
            other => json!(format!("sequence of {other}")),
        },
        FormKind::Rows => match dataset.datatype.class {
            crate::format::hdf5::Class::Reference(_) => json!("reference"),
            crate::format::hdf5::Class::Sequence(_) => json!("sequence of compound"),
            _ => json!("compound"),
        },
        FormKind::Stored(name) => json!(name),
        FormKind::Null => Plain::of_type(&dataset.datatype).map_or(json!("text"), |of| array(&of)),
        FormKind::Broken(_) => Json::Null,
    }
}

/// Returns the fields of records that are shown as lines.
fn fields(datatype: &Datatype) -> Option<Vec<ObjectField>> {
    let TypeClass::Compound(members) = &datatype.class else { return None };
    let field = |datatype: &Datatype| {
        let is_value = matches!(datatype.class, TypeClass::Text(..)) || !has_texts(datatype);
        let plain = Plain::of_type(datatype).filter(|_| is_value)?;
        Some((plain.element, plain.inner))
    };
    Some(members.iter().map(|member| (key(&member.name).into(), field(&member.datatype))).collect())
}

/// Returns a word for datasets that are not arrays of one type.
fn word(dataset: &Dataset, kind: &FormKind) -> Option<&'static str> {
    match kind {
        FormKind::Text(_) | FormKind::Texts => Some("text"),
        FormKind::Sequence(_) => Some("sequence"),
        FormKind::Rows => Some(match dataset.datatype.class {
            TypeClass::Reference(_) => "reference",
            TypeClass::Compound(_) => "compound",
            _ => "rows",
        }),
        FormKind::Stored(name) => Some(name),
        FormKind::Null => Some("null"),
        FormKind::Plain(_) | FormKind::Broken(_) => None,
    }
}

impl Store {
    /// Returns about how many bytes of memory attributes take.
    pub(super) fn attributes_usage(attributes: &[Attribute]) -> usize {
        let value = |attribute: &Attribute| match &attribute.value {
            Ok(stored) => stored.data.len() + stored.datatype.memory_usage() + 8 * stored.space.most.len() * 2,
            Err(unread) => unread.reason.len(),
        };
        attributes.iter().map(|attribute| 256 + attribute.name.len() + value(attribute)).sum()
    }
}
