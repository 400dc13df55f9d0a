//! The pages, and the frame around each.

use std::{
    ffi::OsStr,
    ops::{ControlFlow, Range},
    path::Path,
};

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    assets, document,
    elements::{Elements, shape_text},
    episode::{Episode, Neighbours},
    folder,
    html::{self, Html, counted},
    items::{self, View},
    meta, plane,
    query::Query,
    recording, summary,
    table::{self, Table},
};
use crate::{
    escape::shortened,
    serve::{Refusal, http::paths},
    tree::{Success, episode_name, overview::Contents},
    volume::{Entry, Error, ErrorKind, Volume},
};

/// Problems on their page: the newest.
const PROBLEMS: usize = 500;
/// Episodes on a page of them.
const EPISODES: u64 = 50;

/// The link by which a file is downloaded: its address, and its name there.
const DOWNLOAD: &str = r#"<span class="actions"><a class="button" href="{}" download="{}">Download</a></span>"#;

/// A page, and its status.
pub(super) type Made = (StatusCode, Html);

/// Returns a whole page: `main` in the frame that all pages have.
fn framed(volume: &Volume, title: &str, path: &Path, scripts: &[&'static str], main: &Html) -> Html {
    let mut html = Html::default();
    html.fill(include_str!("assets/head.html"), &[title, assets::version()]);
    for script in std::iter::once(&"page.js").chain(scripts) {
        html.fill(r#"<script defer src="/-/assets/{}/{}"></script>"#, &[assets::version(), script]);
    }
    // Inline, because nothing is drawn before these are there, and requests of their own take as long as all the rest.
    html.raw("<style>").raw(assets::STYLESHEET).raw("</style><script>").raw(assets::THEME).raw("</script>");
    html.fill(include_str!("assets/crumbs.html"), &[&top_name(volume)]);
    let mut so_far = std::path::PathBuf::new();
    let parts: Vec<&OsStr> = path.components().map(|part| part.as_os_str()).collect();
    for (index, part) in parts.iter().enumerate() {
        so_far.push(part);
        let name = part.to_string_lossy();
        if index + 1 == parts.len() {
            html.fill(r#"<li><span aria-current="page">{}</span></li>"#, &[&name]);
        } else {
            html.fill(r#"<li><a href="/files/{}/">{}</a></li>"#, &[&paths::encode(&so_far), &name]);
        }
    }
    html.raw(r#"</ol></nav><div class="tools">"#);
    let problems = volume.vfs().problems.count() as u64;
    if problems > 0 {
        html.fill(r#"<a class="badge bad" href="/-/problems">{}</a>"#, &[&counted(problems, "problem")]);
    }
    html.raw(include_str!("assets/tools.html")).push(main).raw("</main></body></html>\n");
    html
}

/// Returns the name of SOURCE.
fn top_name(volume: &Volume) -> String {
    let source = volume.vfs().source();
    source.file_name().map_or_else(|| source.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn name_of(volume: &Volume, entry: &Entry) -> String {
    if entry.name().is_empty() { top_name(volume) } else { entry.name().to_string_lossy().into_owned() }
}

/// The page of an error.
pub(super) fn refusal(volume: &Volume, refusal: &Refusal) -> Made {
    let mut main = Html::default();
    let reason = refusal.status.canonical_reason().unwrap_or("Error");
    main.fill(r#"<div class="head"><h1>{}</h1></div><p class="notice bad">{}</p>"#, &[reason, &refusal.text]);
    main.raw(r#"<p><a class="button" href="/files/">To the top</a></p>"#);
    (refusal.status, framed(volume, "Error", Path::new(""), &[], &main))
}

/// Makes the page of a folder, a container or a file. If that fails, the page says why.
pub(super) fn entry(volume: &Volume, entry: &Entry, query: &Query) -> Made {
    let main = if entry.is_folder() { folder_main(volume, entry, query) } else { file_main(entry, query) };
    let title = name_of(volume, entry);
    match main {
        Ok((main, scripts)) => (StatusCode::OK, framed(volume, &title, entry.path(), scripts, &main)),
        Err(error) => refusal(volume, &Refusal::from(error)),
    }
}

const PLAIN: &[&str] = &[];
// `player.js` loads the scripts of curves itself, after the first frames.
const PLAYER: &[&str] = &["plane.js", "player.js"];
const RECORDING: &[&str] = &["recording.js"];
const ARRAY: &[&str] = &["uplot.js", "chart.js", "plane.js", "table.js", "array.js"];
const TABLE: &[&str] = &["table.js"];

fn folder_main(volume: &Volume, entry: &Entry, query: &Query) -> Result<(Html, &'static [&'static str]), Error> {
    let overview = entry.overview()?;
    let inside = entry.is_inside().then(|| entry.inside());
    let inside = inside.as_deref();
    let mut main = Html::default();
    main.raw(r#"<div class="head"><h1>"#);
    // An episode of a file that has many has only a number as its name.
    if let Some(inside) = inside
        && entry.episodes_of(|episodes, reader| episodes.position(reader, inside))?.flatten().is_some()
    {
        main.raw("Episode ");
    }
    main.name(&name_of(volume, entry)).raw("</h1>");
    if let (Some(overview), Some("")) = (&overview, inside) {
        let (format, line) = (overview.format_name(), summary::line(entry, overview));
        main.fill(r#"<span class="badge format">{}</span><span class="said">{}</span>"#, &[format, &line]);
        if entry.get(".file").is_ok() {
            let own_file = format!("/files/{}", paths::encode(&entry.path().join(".file")));
            main.fill(DOWNLOAD, &[&own_file, &name_of(volume, entry)]);
        }
    }
    main.raw("</div>");
    let mut scripts = PLAIN;
    if let (Some(overview), Some(inside)) = (&overview, inside) {
        if inside.is_empty() {
            for warning in entry.warnings()?.unwrap_or_default().iter().take(PROBLEMS) {
                main.fill(r#"<p class="notice">{}</p>"#, &[warning]);
            }
        }
        write_attributes(&mut main, entry);
        if let Some(episode) = Episode::of(entry, overview, inside)? {
            write_player(&mut main, &episode, entry);
            scripts = PLAYER;
        } else if let Some(shown) = entry.episodes_of(|episodes, reader| episodes.within(reader, inside))?
            && (inside.is_empty() || !shown.is_empty())
        {
            write_episodes(&mut main, entry, inside, shown, query)?;
            // The listing of the folder would only repeat them.
            if !inside.is_empty() {
                return Ok((main, scripts));
            }
        } else {
            if let Contents::Recording(found) = &overview.contents
                && inside.is_empty()
            {
                recording::write(&mut main, entry, found);
                scripts = RECORDING;
            }
            let mut view = Some(overview).filter(|_| inside.is_empty()).and_then(|all| items::view(all, query));
            let is_asked = view == Some(View::Arrays) && query.text("view").is_some();
            if !is_asked && let Some(table) = Table::of(entry, Some(overview), inside)? {
                write_table(&mut main, &table, entry);
                scripts = TABLE;
                view = view.map(|_| View::Files);
            }
            if let Some(view) = view {
                items::write_views(&mut main, view);
            }
            if view == Some(View::Arrays) {
                items::write(&mut main, entry, overview, query);
                return Ok((main, scripts));
            }
        }
    }
    let page = folder::page(entry, query)?;
    let damage = folder::damage(entry);
    folder::write(&mut main, entry, &page, &damage);
    Ok((main, scripts))
}

/// Writes the attributes that a format hangs on a group or an array, if there are any.
fn write_attributes(main: &mut Html, entry: &Entry) {
    if let Some(attributes) = meta::attributes(entry) {
        main.raw(r#"<section class="meta" aria-label="Attributes"><h2>Attributes</h2>"#);
        main.push(&attributes).raw("</section>");
    }
}

fn write_player(main: &mut Html, episode: &Episode, folder: &Entry) {
    // Serializing cannot fail: all keys are texts.
    let about = serde_json::to_string(episode).unwrap_or_default();
    let neighbours = match &episode.neighbours {
        Neighbours { previous: None, next: None } => format!("/-/api/neighbours/{}", paths::encode(folder.path())),
        known => serde_json::to_string(known).unwrap_or_default(),
    };
    let markup = r#"<section class="player" id="player" aria-label="Player" data-episode="{}" data-neighbours="{}">"#;
    main.fill(markup, &[&about, &neighbours]);
    if !episode.cameras.is_empty() {
        main.fill(r#"<div class="stage" data-cameras="{}">"#, &[&episode.cameras.len().to_string()]);
        for camera in &episode.cameras {
            main.raw(r#"<figure class="camera"><div class="frame">"#);
            if let Some(first) = Episode::first_frame(camera).filter(|_| camera.depth.is_none()) {
                main.fill(r#"<img alt="{}" src="{}""#, &[&camera.name, &first]);
                if let Some((width, height)) = camera.size {
                    main.fill(r#" width="{}" height="{}""#, &[&width.to_string(), &height.to_string()]);
                }
                main.raw(r#" fetchpriority="high">"#);
            }
            main.fill("</div><figcaption>{}</figcaption></figure>", &[&camera.name]);
        }
        main.raw("</div>");
    }
    if episode.steps > 0 {
        main.raw(include_str!("assets/transport.html"));
    } else {
        main.raw(r#"<p class="empty">This episode has no steps.</p>"#);
    }
    main.raw("</section>");
    for note in &episode.left_out {
        main.fill(r#"<p class="note">{}</p>"#, &[note]);
    }
    main.raw(r#"<div class="beside"><section class="signals" id="signals" aria-label="Signals">"#);
    main.raw(r#"<h2 class="hidden">Signals</h2></section><aside class="meta" aria-label="Metadata">"#);
    for (name, document) in &episode.meta {
        main.fill("<h2>{}</h2>", &[name]).push(document);
    }
    main.raw("</aside></div>");
}

fn write_table(main: &mut Html, table: &Table, entry: &Entry) {
    let about = json!({
        "source": format!("/-/api/rows/{}", paths::encode(entry.path())),
        "rows": table.rows,
        "columns": table.width(),
    });
    main.section("rows", "table", "Rows", &about);
}

/// Writes the episodes that a folder of a container is about, with their metadata.
fn write_episodes(main: &mut Html, entry: &Entry, inside: &str, shown: Range<u64>, query: &Query) -> Result<(), Error> {
    let depth = Path::new(inside).components().count();
    let container = entry.path().ancestors().nth(depth).unwrap_or(Path::new(""));
    let count = shown.end - shown.start;
    let pages = count.div_ceil(EPISODES).max(1);
    let page = query.number("episodes").unwrap_or(1).clamp(1, pages);
    let first = shown.start + (page - 1) * EPISODES;
    main.fill(include_str!("assets/episodes.html"), &[&counted(count, "episode")]);
    let most = entry.episodes_of(|episodes, _| Ok(episodes.summarised()))?.unwrap_or(0);
    for position in first..shown.end.min(first + EPISODES) {
        let Some(folder) = entry.episodes_of(|episodes, reader| episodes.folder(reader, position))? else { break };
        let is_asked = position - first < most;
        let episode = if is_asked { entry.episode(position).ok().flatten() } else { None };
        let said = episode.as_ref().and_then(|episode| Some((episode.frames, episode.said.as_ref()?)));
        let address = paths::encode(&container.join(&folder));
        main.raw(r#"<tr><td class="name">"#).icon("episode");
        main.fill(r#"<a href="/files/{}/">Episode {}</a>"#, &[&address, &episode_name(&folder)]);
        let Some((frames, said)) = said else {
            main.raw(if is_asked { r#" <span class="badge bad">damaged</span>"# } else { "" });
            main.raw(r#"</td><td></td><td></td><td></td><td class="num"></td><td class="num"></td></tr>"#);
            continue;
        };
        let [task, embodiment] =
            [&said.task, &said.embodiment].map(|text| shortened(text.as_deref().unwrap_or_default(), 120));
        main.fill("</td><td>{}</td><td>{}</td><td>", &[&task, &embodiment]);
        main.raw(match said.success.and_then(Success::known) {
            Some(true) => r#"<span class="badge good">yes</span>"#,
            Some(false) => r#"<span class="badge">no</span>"#,
            None => "",
        });
        let reward = said.total_reward.map(Value::from).filter(Value::is_number);
        let reward = reward.map(|reward| reward.to_string()).unwrap_or_default();
        main.fill(r#"</td><td class="num">{}</td><td class="num">{}</td></tr>"#, &[&reward, &frames.to_string()]);
    }
    main.raw("</tbody></table>");
    main.pages("Pages of episodes", (page, Some(pages)), page < pages, |page| format!("?episodes={page}"));
    main.raw("</section>");
    Ok(())
}

fn file_main(entry: &Entry, query: &Query) -> Result<(Html, &'static [&'static str]), Error> {
    let mut main = Html::default();
    let array = Elements::of(entry)?;
    let name = entry.name().to_string_lossy();
    main.fill(r#"<div class="head"><h1>{}</h1>"#, &[&name]);
    if let Some(array) = &array {
        let (dtype, shape) = (array.dtype.name(), shape_text(&array.shape));
        main.fill(r#"<span class="badge format">{}</span><span class="said">{}</span>"#, &[&dtype, &shape]);
    }
    main.fill(r#"<span class="said">{}</span>"#, &[&html::size(entry.size())]);
    main.fill(DOWNLOAD, &[&paths::address(entry), &name]).raw("</div>");
    let Some(array) = array else {
        if table::is_stored(entry) && entry.size() > 0 {
            match Table::of_stored(entry) {
                Ok(table) => {
                    write_table(&mut main, &table, entry);
                    return Ok((main, TABLE));
                }
                Err(error) if error.kind() != ErrorKind::Damaged => return Err(error),
                // The bytes are shown below.
                Err(error) => drop(main.fill(r#"<p class="notice bad">{}</p>"#, &[&error.to_string()])),
            }
        }
        document::write(&mut main, entry, query)?;
        return Ok((main, PLAIN));
    };
    if array.rows == 0 || array.columns == 0 {
        main.raw(r#"<p class="empty">This array has no elements.</p>"#);
        return Ok((main, PLAIN));
    }
    write_attributes(&mut main, entry);
    let layout = plane::layout(&array);
    let about = json!({
        "path": paths::encode(entry.path()),
        "dtype": array.dtype.name(),
        "numbers": array.dtype.is_number(),
        "shape": array.shape,
        "rows": array.rows,
        "columns": array.columns,
        "picture": layout,
        "picture_first": layout.is_some_and(|layout| plane::is_picture_like(&array, layout)),
    });
    main.section("array", "array", "Array", &about);
    Ok((main, ARRAY))
}

/// Makes the page of the problems seen so far, the newest first.
pub(super) fn problems(volume: &Volume) -> Made {
    let mut newest = Vec::new();
    volume.vfs().problems.each(&mut |problem| {
        newest.push(problem.clone());
        if newest.len() < PROBLEMS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let mut main = Html::default();
    let count = counted(volume.vfs().problems.count() as u64, "problem");
    main.raw(r#"<div class="head"><h1>Problems</h1>"#);
    main.fill(r#"<span class="said">{} seen since this server was started</span></div>"#, &[&count]);
    if newest.is_empty() {
        main.raw(r#"<p class="empty">Nothing was found wrong so far. Blocks are verified when they are read.</p>"#);
    } else {
        main.raw(r#"<table class="list"><thead><tr><th scope="col">Container</th><th scope="col">Path</th>"#);
        main.raw(r#"<th scope="col">Problem</th></tr></thead><tbody>"#);
    }
    let is_alone = volume.root().is_ok_and(|root| root.is_root_of_container());
    for problem in &newest {
        // If SOURCE is one container, it is the top.
        let container = if is_alone { Path::new("") } else { &problem.container };
        let (address, shown) = (paths::encode(container), problem.container.to_string_lossy());
        main.fill(r#"<tr><td class="name"><a href="/-/view/{}">{}</a></td>"#, &[&address, &shown]);
        main.fill("<td>{}</td><td>{}</td></tr>", &[&problem.path, &problem.detail()]);
    }
    if !newest.is_empty() {
        main.raw("</tbody></table>");
    }
    (StatusCode::OK, framed(volume, "Problems", Path::new(""), PLAIN, &main))
}
