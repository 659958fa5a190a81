package cltest

// ServerDifferences are those between CodaLab's own server and ours, with whatever cl.
func ServerDifferences() []Difference { //nolint:funlen // a table
	return []Difference{
		{
			`^ben (ls|print) `, `! User .* does not have sufficient permissions on worksheet .* \(have read, need all\)\.|exit 1`,
			`### (Worksheet|Title|Tags|Owner|Permissions):.*|ref  uuid  name .*|----| +\^\d  <\w+\.\.\.> .*|\[(dataset b|worksheet v)<R>\]\{.*|one|two|% display table x`,
			"CodaLab's server renumbers a changed worksheet at its next reading, which needs all permissions",
		},
		{`^ann info \^0`, `! UsageError: 0 bundles, index 0 .*`, `! UsageError: \d+ bundles, index 0 .*`, "ours counts the bundles of the worksheet"},
		{
			` public$`, `! You are not the admin of group <public's id>\.`, `! Cannot modify the public group <public's id>\.`,
			"the group public has no admin",
		},
		{
			`^ann (upload (bad|evil)|ls -f name,state,failure_message)`, `.*(Upload failed: (Invalid archive upload: failed to|Error -3 while).*|Traceback)`,
			`.*Upload failed: (Invalid archive upload: unpack|not a whole packed file).*`,
			"ours names the archive's fault",
		},
		{
			`^ben upload some`, `! (Uploading some .*|Traceback|Exception: Upload aborted\. .*)`, `! UsageError: Out of disk quota: \d\.0k / 1k .*`,
			"ours counts 4 KiB for each file beside its size: the texts of earlier bundles exceed the quota",
		},
		{`^ben (upload -c|run) x -n quota`, `<id>`, `! UsageError: Out of disk quota: \d\.0k / 1k .*|exit 1`, "the same"},
		{`^ben uinfo .*disk_quota`, `.*107374000000.*`, `.*107374182400.*`, "ours keeps all digits of a quota"},
		{`^ann uedit --url ''`, `! UsageError: Not a valid URL\.|exit 1`, `\w+ *:.*`, "ours allows an empty address"},
		{
			``, `! NotFoundError: Bundle <\w+> not found`, `! NotFoundError: Bundle <\w+> not found, or you may not read it`,
			"ours does not tell which: CodaLab's server shows that a bundle exists",
		},
		{
			`^ben (info|download) .*\$a$`, `[\w ]+ : .*|<private>	None|! User ben.* \(have none, need read\)\.`, `! NotFoundError: Bundle <a> not found, or you may not read it|exit 1`,
			"the same",
		},
		{
			`^ann ls -w \$w`, `! NotFoundError: Could not find worksheet with uuid <w>`, `! User ann.* does not have .* worksheet <w> \(have none, need read\)\.`,
			"the same",
		},
		{`^ann ls -f uuid,owner`, `.*<b\.\.\.>  ben`, `.*<b\.\.\.>  ann`, "ben has to accept a bundle first"},
		{`^ann edit \$b -d x`, `! User ann.* \(have read, need all\)\.|exit 1`, `Saved metadata for bundle <b>\.`, "the same"},
		{`^ann add text x`, `! User ann.* \(have read, need all\)\.|exit 1`, ``, "ben has to accept a worksheet first"},
		{`^ben ls -w w`, `### Owner: ben.*`, ``, "the same"},
		{`^ann rm$`, ``, `! UsageError: The request's data must be a list of objects|exit 1`, "a command without bundles is a mistake"},
		{`^ann wls .count`, `! No results found`, `! UsageError: Worksheets cannot be counted or added up|exit 1`, "CodaLab's server ignores .count here"},
		{
			`^ann (wls|search) .*limit=x`, `! (Traceback|codalab\.client\.json_api_client\.JsonApiException: .*)`,
			`! UsageError: \.limit must be a number of at least 0, not 'x'`,
			"CodaLab's server has an internal error",
		},
		{
			`^ann search (group=public|\.shared) `, `! (Traceback|codalab\.client\.json_api_client\.JsonApiException: .*)|exit 1`,
			`uuid  name .*|----|<\w+\.\.\.> .*|! No results found`,
			"CodaLab's server has an internal error",
		},
		{
			`^ann search (state=nosuch|tag=|nosuch=)`, `! No results found`, `! UsageError: There is no (state|key) .*|exit 1`,
			"ours refuses a key and a state that there is not, if it finds nothing",
		},
		{
			`^ben wls w`, `<w\.\.\.> .*ann.*`, `<w\.\.\.> .*<anonymous>.*`,
			"CodaLab's server names the owners of anonymous worksheets in searches",
		},
		{
			`^ann search \w*size=.sort`, ``, `<[rm]\.\.\.> .*`,
			"CodaLab's server leaves out the bundles that have no size yet",
		},
		{
			`^ann uls `, `! You don't have access to search for these fields|exit 1`, `user_name.*|----|ann.*|1|! No results found`,
			"on CodaLab's server only root may search by name, though everybody sees names",
		},
		{
			`^root uls .*active_after`, `! No results found`, `user_name|----|ann`, "CodaLab's server only records sign-ins of its web page",
		},
		{
			`^root uls .*_less_than=x`, `! No results found`, `! UsageError: \.time_used_less_than needs .*|exit 1`, "a mistake in a search is refused",
		},
		{
			`^ann upload -a `, `! UsageError: Error while parsing chunked transfer body\.`,
			`! UsageError: This server keeps bundles on its disk, not in Azure Blob Storage\.`, "ours has one store",
		},
		{
			`^ann store (add|rm)`,
			`! (UsageError: )?Field may not be null\.|! UsageError: Could not determine .*|! Traceback|! codalab\.client\..* Unable to delete bundle_stores: .*`,
			`! Only root user can create bundle stores\.|! UsageError: Method not allowed\.`, "ours has one store",
		},
		{
			`^ann upload http://127\.0\.0\.1:9/nothing`, `! Contents cannot be modified, bundle already finalized\.`,
			`! Contents cannot be modified, bundle already finalized\. Upload failed: the URL cannot be fetched: .* 127\.0\.0\.1`,
			"ours states the reason, and fetches nothing from the site's own network",
		},
		{
			`^ann ls -f name,state,failure_message`, `.* failed  Upload failed: <urlopen error .*>`,
			`.* failed  Upload failed: the URL cannot be fetched: .* 127\.0\.0\.1`, "ours fetches nothing from the site's own network",
		},
		{`^\w+ print -r`, `\[worksheet \]\{\{<v>\}\}`, `\[worksheet v<R>\]\{\{<v>\}\}`, "ours sends cl the names of worksheets on worksheets"},
		{
			`^ann (wait|info) k2\$R`, `! failed|exit 1|state  : failed|failure_message  : Unable to copy .*/y/z`, `<k2>|state  : ready|data_size  : 12\.0k`,
			"CodaLab's server makes no key of several directories",
		},
		{
			`^ann netcat \$r4 5006`, `! .*JsonApiException: Unable to netcat <r4>: Internal Server Error - Internal Server Error`,
			`! .*JsonApiException: Unable to netcat <r4>: Internal Server Error - \[Errno 111\] Connection refused`,
			"ours passes on the worker's message",
		},
		{
			`^ann write \$r4/a/b`, `! UsageError: Child path must match .*`, `! UsageError: subpath must be the name of a file of letters.*`,
			"ours describes the valid names",
		},
		{`^ann info o`, `  n<R>: \(<n>\)`, `  n<R>: <missing or private>\(<n>\)`, "ours tells that it may be missing"},
		{`^ann info -f state,failure_message r2`, `killed	None`, `killed	Kill requested`, "ours records the reason of a run that was killed before it began"},
		{`^ann run \.\./x`, `<id>`, `! UsageError: Dependency '\.\./x' leads out of a bundle|exit 1`, "no worker can run it"},
		{
			`^ann run x --request-(memory|time) `, `<id>|! UsageError: Invalid (size|duration): .*`, `! UsageError: invalid (size|time) .*|exit 1`,
			"ours names the valid units, and rejects times that overflow",
		},
		{
			`^ann run x --request-cpus -1`, `<id>`, `! UsageError: Metadata value for request_cpus should be at least 0, was -1|exit 1`,
			"no worker can run it",
		},
	}
}
