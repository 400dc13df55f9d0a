//! Counters as Prometheus reads them (its text format, version 0.0.4), out of the numbers of `stats.json`.

use std::fmt::Write;

use serde_json::{Map, Value};

/// Numbers that go up and down. All others only grow, until the process ends.
const GAUGES: [&str; 18] = [
    "uptime_seconds",
    "latencies_lookup_slowest_seconds",
    "latencies_stat_slowest_seconds",
    "latencies_list_slowest_seconds",
    "latencies_read_slowest_seconds",
    "nodes_held",
    "containers_open",
    "folders_watched",
    "problems",
    "cache_budget",
    "cache_used",
    "cache_slowest_decode_seconds",
    "cache_memory_files",
    "cache_memory_file_bytes",
    "spill_size",
    "spill_used",
    "spill_queued_bytes",
    "remote_disk_queued_bytes",
];

/// Returns the numbers of `stats.json`, one on each line.
pub(crate) fn text(stats: &Value) -> String {
    let mut text = String::new();
    if let Value::Object(stats) = stats {
        write_all(&mut text, "", stats);
    }
    text
}

fn write_all(text: &mut String, before: &str, stats: &Map<String, Value>) {
    for (name, value) in stats {
        let name = format!("{before}{name}");
        match value {
            Value::Object(requests) if name == "requests" => write_requests(text, requests),
            Value::Object(inner) => write_all(text, &format!("{name}_"), inner),
            Value::Number(number) => {
                let is_gauge = GAUGES.contains(&&*name);
                let (kind, end) = if is_gauge { ("gauge", "") } else { ("counter", "_total") };
                // Writing to a String cannot fail.
                let _ = writeln!(text, "# TYPE shardfs_{name}{end} {kind}\nshardfs_{name}{end} {number}");
            }
            _ => {}
        }
    }
}

/// Requests are one counter with a label.
fn write_requests(text: &mut String, requests: &Map<String, Value>) {
    let _ = writeln!(text, "# TYPE shardfs_requests_total counter");
    for (kind, count) in requests.iter().filter(|(_, count)| count.is_number()) {
        let _ = writeln!(text, "shardfs_requests_total{{kind=\"{kind}\"}} {count}");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_become_counters_and_gauges() {
        let stats =
            json!({"uptime_seconds": 1.5, "requests": {"read": 3}, "cache": {"used": 7, "hits": 2}, "spill": null});
        let mut lines: Vec<String> = text(&stats).lines().map(str::to_owned).collect();
        lines.sort();
        let mut expected = [
            "# TYPE shardfs_uptime_seconds gauge",
            "shardfs_uptime_seconds 1.5",
            "# TYPE shardfs_requests_total counter",
            "shardfs_requests_total{kind=\"read\"} 3",
            "# TYPE shardfs_cache_used gauge",
            "shardfs_cache_used 7",
            "# TYPE shardfs_cache_hits_total counter",
            "shardfs_cache_hits_total 2",
        ];
        expected.sort_unstable();
        assert_eq!(lines, expected);
    }
}
