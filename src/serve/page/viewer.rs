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
    episode::Episode,
    folder,
    html::{self, Html, counted},
    items::{self, View},
    meta, plane,
    query::Query,
    recording, summary,
    table::{self, Table},
};
use crate::{
    serve::{Refusal, http::paths},
    tree::{Success, overview::Contents},
    volume::{Entry, Error, ErrorKind, Volume},
};

/// Problems on their page: the newest.
const PROBLEMS: usize = 500;
/// Episodes on a page of them.
const EPISODES: u64 = 50;

/// A page, and its status.
pub(super) type Made = (StatusCode, Html);

/// Returns a whole page: `main` in the frame that all pages have.
fn framed(volume: &Volume, title: &str, path: &Path, scripts: &[&'static str], main: &Html) -> Html {
    let mut html = Html::default();
    html.raw("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    html.raw("<meta name=\"color-scheme\" content=\"light dark\"><title>").text(title).raw(" · shardfs</title>");
    let mut asset = |before: &'static str, name: &'static str, after: &'static str| {
        html.raw(before).raw("/-/assets/").raw(assets::version()).raw("/").raw(name).raw(after);
    };
    asset("<link rel=\"icon\" type=\"image/svg+xml\" href=\"", "icon.svg", "\">");
    asset("<script defer src=\"", "page.js", "\"></script>");
    for script in scripts {
        asset("<script defer src=\"", script, "\"></script>");
    }
    // Inline, because nothing is drawn before these are there, and requests of their own take as long as all the rest.
    html.raw("<style>").raw(assets::STYLESHEET).raw("</style><script>").raw(assets::THEME).raw("</script>");
    html.raw("</head><body><a class=\"skip\" href=\"#main\">Skip to content</a><header class=\"top\">");
    html.raw("<nav aria-label=\"Path\"><ol class=\"crumbs\"><li><a class=\"brand\" href=\"/files/\">");
    html.text(&top_name(volume)).raw("</a></li>");
    let mut so_far = std::path::PathBuf::new();
    let parts: Vec<&OsStr> = path.components().map(|part| part.as_os_str()).collect();
    for (index, part) in parts.iter().enumerate() {
        so_far.push(part);
        html.raw("<li>");
        if index + 1 == parts.len() {
            html.raw("<span aria-current=\"page\">").text(&part.to_string_lossy()).raw("</span>");
        } else {
            html.raw("<a href=\"/files/").path(&so_far).raw("/\">").text(&part.to_string_lossy()).raw("</a>");
        }
        html.raw("</li>");
    }
    html.raw("</ol></nav><div class=\"tools\">");
    let problems = volume.problem_count();
    if problems > 0 {
        html.raw("<a class=\"badge bad\" href=\"/-/problems\">").text(&counted(problems, "problem")).raw("</a>");
    }
    html.raw("<button type=\"button\" id=\"theme\" title=\"Light or dark (t)\" ");
    html.raw("aria-label=\"Switch between light and dark\">");
    html.raw("<span aria-hidden=\"true\">◐</span></button><button type=\"button\" id=\"help\" title=\"Keys (?)\" ");
    html.raw("aria-label=\"Show the keys\"><span aria-hidden=\"true\">?</span></button></div></header>");
    html.raw("<main id=\"main\">").push(main).raw("</main></body></html>\n");
    html
}

/// Returns the name of SOURCE.
fn top_name(volume: &Volume) -> String {
    let source = volume.source();
    source.file_name().map_or_else(|| source.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn name_of(volume: &Volume, entry: &Entry) -> String {
    if entry.name().is_empty() { top_name(volume) } else { entry.name().to_string_lossy().into_owned() }
}

/// The page of an error.
pub(super) fn refusal(volume: &Volume, refusal: &Refusal) -> Made {
    let mut main = Html::default();
    main.raw("<div class=\"head\"><h1>").text(refusal.status.canonical_reason().unwrap_or("Error")).raw("</h1></div>");
    main.raw("<p class=\"notice bad\">").text(&refusal.text).raw("</p>");
    main.raw("<p><a class=\"button\" href=\"/files/\">To the top</a></p>");
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
    main.raw("<div class=\"head\"><h1>");
    // An episode of a file that has many has only a number as its name.
    if let Some(inside) = inside
        && entry.episodes_of(|episodes, reader| episodes.position(reader, inside))?.flatten().is_some()
    {
        main.raw("Episode ");
    }
    main.name(&name_of(volume, entry)).raw("</h1>");
    if let (Some(overview), Some("")) = (&overview, inside) {
        main.raw("<span class=\"badge format\">").raw(overview.format_name()).raw("</span>");
        main.raw("<span class=\"said\">").text(&summary::line(entry, overview)).raw("</span>");
        let own_file = entry.path().join(".file");
        main.raw("<span class=\"actions\"><a class=\"button\" href=\"/files/").path(&own_file);
        main.raw("\" download=\"").text(&name_of(volume, entry)).raw("\">Download</a></span>");
    }
    main.raw("</div>");
    let mut scripts = PLAIN;
    if let (Some(overview), Some(inside)) = (&overview, inside) {
        if inside.is_empty() {
            for warning in entry.warnings()?.unwrap_or_default().iter().take(PROBLEMS) {
                main.raw("<p class=\"notice\">").text(warning).raw("</p>");
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
        main.raw("<section class=\"meta\" aria-label=\"Attributes\"><h2>Attributes</h2>")
            .push(&attributes)
            .raw("</section>");
    }
}

fn write_player(main: &mut Html, episode: &Episode, folder: &Entry) {
    main.raw("<section class=\"player\" id=\"player\" aria-label=\"Player\" data-episode=\"");
    // Serializing cannot fail: all keys are texts.
    main.text(&serde_json::to_string(episode).unwrap_or_default());
    main.raw("\" data-neighbours=\"");
    let neighbours = &episode.neighbours;
    if neighbours.previous.is_some() || neighbours.next.is_some() {
        main.text(&serde_json::to_string(neighbours).unwrap_or_default());
    } else {
        main.raw("/-/api/neighbours/").path(folder.path());
    }
    main.raw("\">");
    if !episode.cameras.is_empty() {
        main.raw("<div class=\"stage\" data-cameras=\"").number(episode.cameras.len() as u64).raw("\">");
        for camera in &episode.cameras {
            main.raw("<figure class=\"camera\"><div class=\"frame\">");
            if let Some(first) = Episode::first_frame(camera).filter(|_| camera.depth.is_none()) {
                main.raw("<img alt=\"").text(&camera.name).raw("\" src=\"").text(&first).raw("\"");
                if let Some((width, height)) = camera.size {
                    main.raw(" width=\"").number(width).raw("\" height=\"").number(height).raw("\"");
                }
                main.raw(" fetchpriority=\"high\">");
            }
            main.raw("</div><figcaption>").text(&camera.name).raw("</figcaption></figure>");
        }
        main.raw("</div>");
    }
    if episode.steps > 0 {
        main.raw(include_str!("assets/transport.html"));
    } else {
        main.raw("<p class=\"empty\">This episode has no steps.</p>");
    }
    main.raw("</section><div class=\"beside\"><section class=\"signals\" id=\"signals\" aria-label=\"Signals\">");
    main.raw("<h2 class=\"hidden\">Signals</h2></section>");
    main.raw("<aside class=\"meta\" aria-label=\"Metadata\">");
    for (name, document) in &episode.meta {
        main.raw("<h2>").text(name).raw("</h2>").push(document);
    }
    main.raw("</aside></div>");
}

fn write_table(main: &mut Html, table: &Table, entry: &Entry) {
    let about = json!({
        "source": format!("/-/api/rows/{}", paths::encode(entry.path())),
        "rows": table.rows,
        "columns": table.columns.len(),
    });
    main.section("rows", "table", "Rows", &about);
}

/// Returns the name of an episode by its folder: the number, behind the name of the part of the data set that it is in.
fn episode_name(folder: &str) -> String {
    let parts: Vec<&str> = folder.split('/').collect();
    match parts[..] {
        [part, _, number] => format!("{part} {number}"),
        _ => parts.last().copied().unwrap_or_default().to_owned(),
    }
}

/// Writes the episodes that a folder of a container is about, with their metadata.
fn write_episodes(main: &mut Html, entry: &Entry, inside: &str, shown: Range<u64>, query: &Query) -> Result<(), Error> {
    let depth = Path::new(inside).components().count();
    let container = entry.path().ancestors().nth(depth).unwrap_or(Path::new(""));
    let count = shown.end - shown.start;
    let pages = count.div_ceil(EPISODES).max(1);
    let page = query.number("episodes").unwrap_or(1).clamp(1, pages);
    let first = shown.start + (page - 1) * EPISODES;
    main.raw("<section aria-labelledby=\"episodes-title\"><div class=\"bar\"><h2 id=\"episodes-title\">Episodes</h2>");
    main.raw("<span class=\"count\">").text(&counted(count, "episode")).raw("</span></div>");
    main.raw("<table class=\"list\"><thead><tr><th scope=\"col\">Episode</th><th scope=\"col\">Task</th>");
    main.raw(
        "<th scope=\"col\">Embodiment</th><th scope=\"col\">Success</th><th scope=\"col\" class=\"num\">Reward</th>",
    );
    main.raw("<th scope=\"col\" class=\"num\">Steps</th></tr></thead><tbody>");
    let most = entry.episodes_of(|episodes, _| Ok(episodes.summarised()))?.unwrap_or(0);
    for position in first..shown.end.min(first + EPISODES) {
        let Some(folder) = entry.episodes_of(|episodes, reader| episodes.folder(reader, position))? else { break };
        let is_asked = position - first < most;
        let episode = if is_asked { entry.episode(position).ok().flatten() } else { None };
        let said = episode.as_ref().and_then(|episode| Some((episode.frames, episode.said.as_ref()?)));
        main.raw("<tr><td class=\"name\">")
            .icon("episode")
            .raw("<a href=\"/files/")
            .path(&container.join(&folder))
            .raw("/\">Episode ");
        main.text(&episode_name(&folder)).raw("</a>");
        if is_asked && said.is_none() {
            main.raw(" <span class=\"badge bad\">damaged</span>");
        }
        main.raw("</td><td>");
        let Some((frames, said)) = said else {
            main.raw("</td><td></td><td></td><td class=\"num\"></td><td class=\"num\"></td></tr>");
            continue;
        };
        main.text(&summary::shortened(&said.task, 120)).raw("</td><td>");
        main.text(&summary::shortened(said.embodiment.as_deref().unwrap_or_default(), 120)).raw("</td><td>");
        main.raw(match said.success.and_then(Success::known) {
            Some(true) => "<span class=\"badge good\">yes</span>",
            Some(false) => "<span class=\"badge\">no</span>",
            None => "",
        });
        let reward = said.total_reward.map(Value::from).filter(Value::is_number);
        main.raw("</td><td class=\"num\">").text(&reward.map(|reward| reward.to_string()).unwrap_or_default());
        main.raw("</td><td class=\"num\">").text(&frames.to_string()).raw("</td></tr>");
    }
    main.raw("</tbody></table>");
    main.pages("Pages of episodes", (page, Some(pages)), page < pages, |page| format!("?episodes={page}"));
    main.raw("</section>");
    Ok(())
}

fn file_main(entry: &Entry, query: &Query) -> Result<(Html, &'static [&'static str]), Error> {
    let mut main = Html::default();
    let array = Elements::of(entry)?;
    main.raw("<div class=\"head\"><h1>").text(&entry.name().to_string_lossy()).raw("</h1>");
    if let Some(array) = &array {
        main.raw("<span class=\"badge format\">").text(&array.dtype.name()).raw("</span><span class=\"said\">");
        main.text(&shape_text(&array.shape)).raw("</span>");
    }
    main.raw("<span class=\"said\">").text(&html::size(entry.size())).raw("</span><span class=\"actions\">");
    main.raw("<a class=\"button\" href=\"").text(&paths::address(entry)).raw("\" download=\"");
    main.text(&entry.name().to_string_lossy()).raw("\">Download</a></span></div>");
    let Some(array) = array else {
        if table::is_stored(entry) && entry.size() > 0 {
            match Table::of_stored(entry) {
                Ok(table) => {
                    write_table(&mut main, &table, entry);
                    return Ok((main, TABLE));
                }
                Err(error) if error.kind() != ErrorKind::Damaged => return Err(error),
                // The bytes are shown below.
                Err(error) => drop(main.raw("<p class=\"notice bad\">").text(&error.to_string()).raw("</p>")),
            }
        }
        document::write(&mut main, entry, query)?;
        return Ok((main, PLAIN));
    };
    if array.rows == 0 || array.columns == 0 {
        main.raw("<p class=\"empty\">This array has no elements.</p>");
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
    volume.each_problem(&mut |problem| {
        newest.push(problem.clone());
        if newest.len() < PROBLEMS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let mut main = Html::default();
    main.raw("<div class=\"head\"><h1>Problems</h1><span class=\"said\">");
    main.text(&counted(volume.problem_count(), "problem")).raw(" seen since this server was started</span></div>");
    if newest.is_empty() {
        main.raw("<p class=\"empty\">Nothing was found wrong so far. Blocks are verified when they are read.</p>");
    } else {
        main.raw("<table class=\"list\"><thead><tr><th scope=\"col\">Container</th><th scope=\"col\">Path</th>");
        main.raw("<th scope=\"col\">Problem</th></tr></thead><tbody>");
    }
    let is_alone = volume.root().is_ok_and(|root| root.is_root_of_container());
    for problem in &newest {
        // If SOURCE is one container, it is the top.
        let container = if is_alone { Path::new("") } else { &problem.container };
        main.raw("<tr><td class=\"name\"><a href=\"/-/view/").path(container).raw("\">");
        main.text(&problem.container.to_string_lossy()).raw("</a></td><td>").text(&problem.path);
        main.raw("</td><td>").text(&problem.detail()).raw("</td></tr>");
    }
    if !newest.is_empty() {
        main.raw("</tbody></table>");
    }
    (StatusCode::OK, framed(volume, "Problems", Path::new(""), PLAIN, &main))
}
