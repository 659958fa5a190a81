package server_test

import "regexp"

// replayDifference is a difference between the recorded answers and ours that is on purpose. exchange
// matches the recording, the line and the request; at the field; stock and ours all of its values.
type replayDifference struct {
	exchange, at, stock, ours string
	// because says why ours differs.
	because string
}

// allowed returns the index of the difference that allows one at a field, or -1.
func allowed(exchange, at, stock, ours string) int {
	for i, d := range replayDifferences() {
		if regexp.MustCompile(d.exchange).MatchString(exchange) && regexp.MustCompile(d.at).MatchString(at) &&
			regexp.MustCompile(`^(?s:`+d.stock+`)$`).MatchString(stock) && regexp.MustCompile(`^(?s:`+d.ours+`)$`).MatchString(ours) {
			return i
		}
	}
	return -1
}

// replayDifferences are all that TestReplayOfRecordedPrograms accepts.
func replayDifferences() []replayDifference {
	const text, none = `.*`, `<none>`
	return []replayDifference{
		// Headers.
		{`.`, `^header Content-Type$`, `text/html; charset=UTF-8`, ``, "an empty body has no type"},
		{`.`, `^header Content-Type$`, `text/html; charset=UTF-8`, `text/plain; charset=utf-8`, "refusals are plain text, and may quote what users wrote"},
		{`.`, `^header X-Content-Type-Options$`, ``, `nosniff`, "no browser should take text or contents for a page"},
		{`/contents/blob/`, `^header Vary$`, ``, `Accept-Encoding`, "caches keep each coding apart"},
		{`/contents/blob/`, `^header Content-Security-Policy$`, ``, `sandbox`, "a browser must not run contents"},

		// Users.
		{`/user`, `attributes\.last_login$`, `null`, `"\w+ Nov 20 08:0\d:\d+ 2026"`, "CodaLab's server counts only sign-ins on its web page"},
		{
			`/user`, `attributes\.disk_used$`, `\d+`, `\d+`,
			"ours counts 4 KiB for each file, directory and link beside its size, and results that were uploaded, not what the worker reported of its directory; " +
				"other people used the recorded server too",
		},
		{
			`/user`, `attributes\.((entries_quota|entries_used)|(disk|time)_used_by_runs)$`, none, `\d+`,
			"ours has a quota of files, directories, links and bundles, and tells the parts of running runs",
		},

		// Worksheets.
		{
			`/worksheets`, `relationships\.items\.data length$`, `\[\{"id":"\('.*`, `\[\]`,
			"CodaLab's server takes the fields of a short description for items",
		},
		{`^cli 52 `, `^\.included\[\d+\]\.relationships$`, `.*"\('uuid', '0x\w+'\)".*`, none, "the same"},
		{
			`/rest/worksheets($|\?)`, `attributes\.(date_\w+|frozen|is_anonymous|last_item_id|name|tags|title)$|relationships\.owner$`, none, text,
			"ours describes worksheets alike in all answers",
		},
		{`^cli 221 `, `relationships\.group_permissions$`, `\{"data":.*`, none, "not asked for"},
		{
			`/worksheet`, `\.date_last_modified$`, `2026-11-20T08:0[36]:\d\d.*`, `2026-11-20T08:0[356]:\d\d.*`,
			"CodaLab's server changes a worksheet when somebody reads its items, to number them",
		},
		{
			`POST /rest/(bundle|worksheet)-permissions`, `id of \w+-permissions$`, `<marshmallow\.missing>`, `0x\w+/0x\w+`,
			"ours knows the identifier",
		},
		{`POST /rest/(bundle|worksheet)-permissions`, `attributes\.group_name$`, none, `"public"`, "ours describes permissions alike in all answers"},
		{`POST /rest/worksheet-items`, `id of worksheet-items$`, `<marshmallow\.missing>`, `0`, "CodaLab's server sends no identifier either: it has another word for none"},
		{
			`POST /rest/worksheet-items`, `attributes\.(sort_key|value)$|relationships\.(bundle|subworksheet)$`, none, `0|""|\{"data":null\}`,
			"ours describes items alike in all answers",
		},

		// Groups and workers.
		{`/rest/groups$`, `relationships\.(admins|members)$|attributes\.user_defined$`, none, `\{"data":\[\]\}|true|false`, "ours describes groups alike in all answers"},
		{`/rest/workers/info`, `\.socket_id$`, `\d+`, `null`, "ours keeps no sockets for workers"},

		// Bundles.
		{
			`.`, `metadata\.(\w+_usage|time(_\w+)?)$`, `0\.0`, `0`,
			"the same number: JSON has one kind of them",
		},
		{`/contents/info/`, `^body$`, `Path '' in bundle 0x\w+ not found`, `Bundle 0x\w+ is a link to /data/a\.txt, which this server cannot read`, "ours says why"},
		{
			`^cli (15\d|21\d|2[2-5]\d) `, `metadata\.data_size$`, `4162`, `4112`,
			"ours counts the contents that were uploaded; the worker's figure has the links to dependencies too",
		},
		{
			`^cli 1(6[358]|7[58]|79|8\d|9\d) `, `metadata\.(last_updated|time|memory_usage)$`, `[\d.]+`, `[\d.]+`,
			"ours stores a report in which only times and use have changed at most every 30 s",
		},
		{`^cli 19[5-9] `, `metadata\.time_running$`, `43\.1039\d+`, none, "the same"},
		{
			`POST /rest/bundles\?`, `attributes\.(state|state_details|metadata\.staged_status)$`, `created|Bundle has been created.*|<none>`, `staged|Bundle's dependencies.*|"Bundle's dependencies.*`,
			"ours stages a run without inputs at once",
		},
		{
			`^cli (248|256) `, `staged_status$|state_details$`, `No worker can meet your bundle's resource requirements\..*`,
			`No worker serves queue nosuch \(queues now served: rec\)\.`, "ours says which requirement it is",
		},
		{`^cli 256 `, `metadata\.failure_message$`, none, `"Kill requested"`, "ours says why a run ended that was killed before it began"},
		{`^cli 256 `, `dependencies\[\d+\]\.parent_name$`, `null`, `"<missing>"`, "cl info fails for a parent without a name"},
		{`^cli 256 `, `dependencies\[\d+\]\.parent_state$`, `null`, none, "a parent that is gone has no state"},
		{`^cli 256 `, `^\.included$`, none, `.*"name":"recws".*`, "ours includes a subworksheet also if it is the worksheet itself"},

		// Messages to workers.
		{
			`/checkin`, `read_args\.(depth|length|max_line_length|num_head_lines|num_tail_lines|offset|truncation_text)$`, none, `\d+|""`,
			"CodaLab's own worker hangs up where a key is missing that it reads, and ignores others",
		},
		{`/checkin`, `^\[\d+\]\.bundle\.owner_name$`, none, `"\w+"`, "bridges write the owner into the names of jobs, and choose an account by it"},
		{`/checkin`, `kill_message$`, none, `"Kill requested"`, "what CodaLab's worker assumes where there is none"},
		{
			`^worker 44 `, `^\[0\]$`, `null`, `\{"kill_message":"Kill requested","type":"kill","uuid":"0x\w+"\}`,
			"ours repeats a kill until the run has ended, in case an answer is lost",
		},
	}
}
