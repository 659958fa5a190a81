package main

import "github.com/cl-slurm/cl-slurm/server/cltest"

// differences are those between CodaLab's own cl and ours, on whatever server.
func differences() []cltest.Difference {
	return differencesOf([][4]string{
		{
			`^\w+ (search|s|ls|rm)( |$)`, `\s*(\^\d+  )?<\w+\.\.\.>  \S+  \w+  .*`, `\s*(\^\d+  )?<\w+\.\.\.>  \S+  (\[uploaded\]|! .*|= .*)  \w+  .*`,
			"ours shows the summary: CodaLab's cl reads a wrong field, which is always empty",
		},
		{
			`^\w+ rm `, `! UsageError: Can't delete bundles .* because the following bundles depend on them:|! \S+\(<.*>\)`,
			`! UsageError: Others depend on what you remove: .* depends? on it: .*`, "ours names the dependents with their number, and the ways out, in one sentence",
		},
		{`^\w+ rm -i `, ``, `! Together \d+ bundles?, .*`, "ours adds the sizes up"},
		{
			`^\w+ ls -f uuid,name,summary`, `\s*\^\d+  <\w+\.\.\.>  \S+`, `\s*\^\d+  <\w+\.\.\.>  \S+  (\[uploaded\]|! .*|= .*)`,
			"ours shows the summary, as above",
		},
		{
			``, `! (usage: .*|\[.*|cl.*: error: .*|bundle.*)`, `! cl.*: error: .*`,
			"a mistake in a command line is one sentence with a suggestion",
		},
		{`^ann rm$`, ``, `exit 2`, "a command without bundles is a mistake"},
		{``, `(.*)<time>(.*)`, `.*<time> UTC.*`, "a time has its zone"},
		{
			`^ann (chown|wedit w\$R -o) `, ``, `! Offered (1 bundle \(.*\)|worksheet w<R>) to ben until .*`, "cl tells that cl-server only offers it",
		},
		{
			``, `! UsageError: (Names must match|Invalid name).*`, `! UsageError: Invalid name .*: it must begin with.*`,
			"cl itself refuses a bad name, and suggests a good one",
		},
		{``, `! Preparing upload archive\.\.\.|! Uploading .*`, ``, "ours prints the progress of an upload only on a terminal, if it takes longer"},
		{
			`^\w+ (run|mimic|macro)\b`, ``, `! cl: (No worker serves queue .*|No worker takes bundles that name no queue .*|The run fails unless that changes: .*)`,
			"ours warns at once of a queue that is not there, and of requests beyond the site's limits",
		},
		{`^\w+ (uedit|uinfo)`, ``, `entries  : .*`, "ours has a quota of files, directories, links and bundles"},
		{
			`^ben upload some`, ``, `! UsageError: Can't save bundle, user disk quota exceeded\. The upload needs .*`, "ours checks the quota before it sends anything",
		},
		{
			`^ann upload `, `! UsageError: (Upload does not support mixing .*|upload got non-existent path:: .*|Not following symlinks\.)`,
			`! UsageError: (Upload does not support mixing .*|upload got non-existent path: .*|Not following symlinks: .*; -L follows them)`,
			"ours names the path, and suggests an option",
		},
		{`^ann cat \$i$`, `x\.pyc  .*`, ``, "-x that is given twice adds to the list: CodaLab's cl forgets the first"},
		{
			`^ann upload dir -i`, `! Excluding files and directories specified by ignore\.`, `! No directory that is uploaded has a file ignore with patterns\.`,
			"ours warns if there is no file with patterns",
		},
		{`^ann upload `, ``, `! Bundle <.*> was removed again: its upload has not succeeded\.`, "a failed upload leaves nothing behind"},
		{`^ann ls -f name,state,failure_message`, `\s*\^\d+  .*`, `\s*\^\d+  .*`, "the same: the failed bundles are not there"},
		{
			`^ann info -f state \$e`, `! NotFoundError: bundle spec no-e doesn't match any bundles`, `! NotFoundError: Bundle <e> not found`, "the same: the failed bundle is not there",
		},
		{`^ann upload http://127`, ``, `! UsageError: Upload failed: the URL cannot be fetched: .*`, "ours states the reason"},
		{
			`^ann store `, `! Only root user can create bundle stores\.`, `! UsageError: (a store needs --name, and .*|cl store rm needs the uuid .*|this server has one store, .*)`,
			"ours names the missing arguments before it sends anything",
		},
		{`^ann info -f description,name \$ed`, `	edited<R>`, `by editor	edited<R>`, "upload --edit edits the metadata: CodaLab's cl ignores it"},
		{
			`^ann uls .* -f`, `exit 2`, `user_name|----|ann|! No results found`,
			"words may come after options: CodaLab's cl takes none after those",
		},
		{
			`^ann (info|ls) .*nosuch`, `None|### .*|ref  nosuch  summary|----|\s*\^\d.*`, `! UsageError: there is no field "nosuch".*|exit 1`,
			"an unknown field is a mistake, not an empty column",
		},
		{
			`^ann info -f .*group_permissions`, `.*None.*`, `.*\t.*`, "ours asks for the children, permissions and worksheets that -f names",
		},
		{
			`^ann info \S*w\S*//a`, `! UsageError: Invalid bundle_spec: /a<R>|exit 1`, `[a-z_]+  : .*`,
			"info takes WORKSHEET//BUNDLE, like the other commands",
		},
		{
			`^\w+ info `, ``, `state_details  : .*`, "ours also has a sentence with the reason of a wait or a failure",
		},
		{`^\w+ (info |.* -W)`, ``, `access  : .*`, "ours also says in words who may read and change a bundle"},
		{`^\w+ w?perm `, ``, `.* is readable .*\.`, "the same"},
		{``, ``, `! cl: (bundle .* is readable by everybody.*|cl perm .* takes it back; .*)`, "ours tells once that everybody may read a new bundle"},
		{
			`^\w+ cat `, `<none>|! UsageError: Target '.*' doesn't exist in bundle .*|exit 1`, `! (NotFoundError: .*|UsageError: .* leads out of the bundle|Worker .*)|exit [23]`,
			"standard output is the file's contents and nothing else; the reason for missing contents is on standard error",
		},
		{
			`^ann wait -t \$a`, `! NotFoundError: Path 'stdout' in bundle <a> not found|exit 1`, `<a>`,
			"ours also waits for a bundle without output",
		},
		{
			`^ann download`, `Local file/directory '.*' already exists\.`, `! UsageError: Local file/directory '.*' already exists\..*|exit 1`,
			"a refused download is a failure",
		},
		{
			`^ann edit \$b -n ''`, `! (Traceback|FileNotFoundError: .*)`, ``, "an empty name is a mistake, and opens no editor",
		},
		{
			`^ann edit \$b -T$`, `! (Traceback|FileNotFoundError: .*)|exit 1`, `Saved metadata for bundle <b>\.`, "-T without words removes the tags",
		},
		{
			`^ann edit \$b -f (nosuch|data_size|created)`, `! UsageError: (Unexpected metadata key: nosuch|Metadata value for .*)`,
			`! UsageError: (there is no field "nosuch".*|\w+ cannot be edited: the server sets it)`,
			"cl itself refuses fields that cannot be edited",
		},
		{
			`^ann edit \$b -f tags x`, `! UsageError: Metadata value for tags should be of type list, was x \(type str\)|exit 1`, `Saved metadata for bundle <b>\.`,
			"ours sends a field's value in its type",
		},
		{`^(ann info -f license,data_size,tags|ben info) \$b`, `.*two words.*x.*`, `.*x.*`, "the same: the tags were edited"},
		{
			`^\w+ kill `, `<\w+>`, ``, "ours prints only the bundles that it has killed",
		},
		{`^\w+ (status|st)$`, `client_version: 1\.7\.3`, `client_version: .*\(CodaLab 1\.7\.3\)`, "ours has a version of its own"},
		{`^ann (-v|help)`, `CodaLab CLI version 1\.7\.3`, `cl version .* \(CodaLab 1\.7\.3\)`, "ours has a version of its own"},
		{`^ann help upload`, `.*`, `.*`, "ours has help of its own"},
		{
			`^ann add text -d`, `! UsageError: -d/--copy_dependencies flag .*`, `! UsageError: -d/--copy-dependencies flag .*`, "the flag's name is --copy-dependencies",
		},
		{
			`^\w+ gls$`, `public  <.*>  EmptyJsonApiRelationship\(\)  member`, `public  <.*>  member`, "CodaLab's cl prints a mistake for no owner",
		},
		{
			`^\w+ urm `, `! (Traceback|TypeError: .*)|exit 1`, `Removed ben from group g<R>\.|! UsageError: \w+ is not a member of group g<R>\.`,
			"CodaLab's cl has a mistake and removes nobody",
		},
		{`^ann ginfo g`, `ben\(<ben's id>\)  admin`, ``, "ours has removed ben, as above"},
		{`^ben uadd \$ben g`, `ben in group g<R> as member`, `! You are not the admin of group <g>\.|exit 1`, "ours has removed ben, as above"},
		{
			`^ben cat \$a`, `secret`, `! User ben.* does not have sufficient permissions .*|exit 1`, "ours has removed ben, as above",
		},
		{
			`^ann w?perm .* nosuch$`, `! (UsageError: Invalid permission flag.*|NotFoundError: .*)`, `! UsageError: Invalid permission flag .*: want none, read or all`,
			"cl itself refuses an invalid permission",
		},
		{
			`^ann perm a\$R nosuch\$R read`, `! NotFoundError: Found no group .*`, `! NotFoundError: bundle spec .*`, "of two mistakes ours reports the first",
		},
		{
			`^\w+ (uinfo -f nosuch|uedit .* -[dt] nosuch)`, `! (Traceback|KeyError: .*|ValueError: .*)`, `! UsageError: there is no field "nosuch" of users.*`,
			"a mistake is one sentence",
		},
		{
			`^ann run `, ``, `! cl: --request-\w+ .*`, "ours warns of requests that may have been meant otherwise",
		},
		{``, `! failed`, `! failed: .*`, "ours also states the reason"},
		{`^ann run .* -t$`, ``, `exit 1`, "the command fails if the run does, so that a script notices"},
		{
			`^ann ls -f name,failure_message`, `\s*(\^\d+  memory<R>  .*|\. Memory limit .*)`, `\s*\^\d+  memory<R>  .* \. Memory limit .*`, "a row is one line",
		},
		{`^ann wedit -f nosuch`, `! (Traceback|FileNotFoundError: .*)`, `! UsageError: open nosuch: .*`, "a mistake is one sentence"},
		{`^ann netcat`, `! Traceback|exit 1`, `! ServerError: .*|exit 3`, "an error of the server is one sentence"},
		{`^ann config cli/verbose`, `1`, `! UsageError: cli/verbose is not set|exit 1`, "ours has no such key"},
		{`^ann config -r .*/y`, `exit 1`, ``, "the same: cl removes nothing that is not there"},
		{`^ann config .*/y`, `! (Traceback|KeyError: .*)`, `! UsageError: x<R>/y is not set`, "a mistake is one sentence"},
		{
			`^\w+ (events|reset|bs-[a-z-]+|w?open) ?`, `! (UsageError: Sanity check! .*|NotFoundError: .*)`,
			`! UsageError: (only CodaLab's own|cl deletes|CodaLab's own server keeps|cl opens).*`,
			"ours does not have these commands, and suggests replacements",
		},
		{`^ann work nosuch\$R::x`, `! (Traceback|ValueError: .*)`, `! UsageError: server address .*`, "a mistake is one sentence"},
		{
			``, `! NotFoundError: bundle spec \S+ doesn't match any bundles`,
			`! NotFoundError: bundle spec \S+ doesn't match any bundles on this worksheet\. Your newest bundle of that name is \S+`,
			"a name holds on one worksheet, and ours tells on which the bundle is",
		},
	})
}

// stockDifferences are the differences that only show on CodaLab's own server.
func stockDifferences() []cltest.Difference {
	return differencesOf([][4]string{
		{
			`^ann (search|wls|store|netcat|upload bad)`, `! (Traceback|codalab\.client\..*JsonApiException: .*)`,
			`! (ServerError: .*|UsageError: Upload failed: .*)|exit 3`, "an error of the server is one sentence",
		},
		{
			`^ann upload http://127`, `! Contents cannot be modified, bundle already finalized\.`, `! UsageError: Upload failed: <urlopen error .*`, "ours states the reason",
		},
		{`^ann store add`, `! (UsageError: )?Field may not be null\.`, ``, "cl itself tells what is missing"},
		{
			`^ann uls .* -f`, ``, `! You don't have access to search for these fields|exit 1`,
			"words may come after options, and this server lets nobody but root search by name",
		},
		{`^root uls .*_less_than=x`, `! No results found`, `user_name|----|ann`, "the server compares with what ann's runs have taken so far"},
		{
			`^ann run x --request-(memory|time) `, `<id>|! UsageError: Invalid (size|duration): .*`, ``, "cl itself refuses what it cannot read",
		},
		{
			`^ann run x --request-cpus -1`, `<id>`, `! UsageError: Metadata value for request_cpus should be at least 1, was -1`, "cl itself refuses what no worker can run",
		},
		{
			`^ann ls -f name,state,command`, `\s*\^\d+  \S+  (staged|failed)  .*`, `\s*\^\d+  \S+  created  .*`, "ours asks before the server has looked at the bundles",
		},
		{`^ann info k2`, `failure_message  : Unable to copy .*`, `failure_message  : Unable to copy .*`, "the server's directory is another"},
		{
			`^ben (uadd \$ben g|grm g)`, `! You are not the admin of group <g>\.`, `! NotFoundError: Found no group with uuid .*`, "ours has removed ben, as above",
		},
		{`^ben upload some`, `! (Traceback|Exception: Upload aborted\. .*)`, ``, "ours checks the quota before it sends anything"},
		{`^ann (info|run .* -W$)`, `data_size  : .*k`, `data_size  : 0 bytes`, "the worker without containers tells no sizes"},
	})
}

func differencesOf(rows [][4]string) []cltest.Difference {
	var all []cltest.Difference
	for _, d := range rows {
		all = append(all, cltest.Difference{Step: d[0], Stock: d[1], Ours: d[2], Because: d[3]})
	}
	return all
}
