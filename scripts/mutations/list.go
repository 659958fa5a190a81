package main

// mutation is one guard of a promise, and the code without it.
type mutation struct {
	promise, name string
	// file has the guard, these very words, once.
	file, guard, without string
	// packages are those whose tests may notice, the likeliest first.
	packages []string
	// beyondSim is set for what the simulation does not run: Slurm's commands,
	// the link protocol, SQL.
	beyondSim bool
}

func mutations() []mutation {
	var all []mutation
	for _, part := range [][]mutation{saving(), submitting(), absence(), beginning(), strays(), delivering(), reporting(), verdicts(), totality()} {
		all = append(all, part...)
	}
	return all
}

// Where the tests of the decisions are.
func decisions() []string { return []string{"bridge/plan", "bridge"} }

func saving() []mutation {
	const step, book = "bridge/step.go", "bridge/ledger/ledger.go"
	return []mutation{
		{
			promise: "I1", name: "rows-are-saved", file: step,
			guard: "	if len(changed)+len(s.effects)+len(b.held) > 0 {\n", without: "	if false {\n", packages: []string{"bridge"},
		},
		{
			promise: "I1", name: "nothing-begins-on-a-ledger-that-is-taken", file: step,
			guard: "	if len(changed)+len(s.effects)+len(b.held) > 0 {\n", without: "	if len(changed) > 0 {\n", packages: []string{"bridge"},
		},
		{
			promise: "I1", name: "what-changed-is-saved", file: step,
			guard: "before.Version == 0 || !before.Same(next)", without: "before.Version == 0 || before.Phase != next.Phase", packages: []string{"bridge"},
		},
		{
			promise: "I1", name: "a-failed-save-ends-the-step", file: step,
			guard: "			return fmt.Errorf(\"save decisions: %w\", err)\n", without: "			_ = err\n", packages: []string{"bridge"},
		},
		{
			promise: "I1", name: "compare-and-swap", file: "bridge/ledger/save.go",
			guard: "		if old.Version != r.Version {\n", without: "		if old.Version > r.Version+1 {\n", packages: []string{"bridge/ledger"}, beyondSim: true,
		},
		{
			promise: "I1", name: "one-writer", file: book,
			guard: "	if l.writer != 0 {\n", without: "	if false {\n", packages: []string{"bridge/ledger"}, beyondSim: true,
		},
	}
}

func submitting() []mutation {
	const file = "bridge/plan/submit.go"
	return []mutation{
		{
			promise: "I2", name: "a-lost-answer-is-no-reason-to-submit", file: file,
			guard: "	case !d.absent():\n", without: "	case false:\n", packages: decisions(),
		},
		{
			promise: "I2", name: "a-job-of-our-name-is-adopted", file: file,
			guard: "if job, ok := adoptable(d.news.Sighting); ok {\n		d.adopt", without: "if job, ok := adoptable(d.news.Sighting); ok && false {\n		d.adopt", packages: decisions(),
		},
		{
			promise: "I2", name: "a-ghost-is-not-adopted", file: file,
			guard: "		case ghost(j):\n", without: "		case false:\n", packages: decisions(),
		},
		{
			promise: "I2", name: "an-unclear-answer-is-no-refusal", file: file,
			guard: "	case s.Refused && s.Retry: // it", without: "	case s.Job == 0: // it", packages: decisions(),
		},
		{
			promise: "I2", name: "a-comment-of-another-bundle-is-foreign", file: "bridge/plan/next.go",
			guard: "return bundle != \"\" && (bundle != d.row.Bundle ||", without: "return bundle == \"-\" && (bundle != d.row.Bundle ||", packages: decisions(),
		},
		{
			promise: "I2", name: "no-sbatch-begins-late", file: "bridge/do.go",
			guard: "> plan.SubmitWithin {", without: "> 1000*plan.SubmitWithin {", packages: []string{"bridge"},
		},
		{
			promise: "I2", name: "a-repeated-refusal-closes", file: file,
			guard: "	case s.Refused && d.row.Sbatches > 1:\n", without: "	case s.Refused && d.row.Sbatches > 1000:\n", packages: decisions(),
		},
		{
			promise: "I2", name: "prepared-before-submitted", file: file,
			guard: "	case d.row.Submitted.IsZero() && !d.row.Prepared:\n		d.prepare()\n", without: "", packages: decisions(),
		},
	}
}

func absence() []mutation {
	const submit, watch = "bridge/plan/submit.go", "bridge/plan/watch.go"
	return []mutation{
		{
			promise: "I3", name: "a-young-snapshot-proves-nothing", file: submit,
			guard: "d.row.Absent.IsZero() && s.Asked.After(d.row.Submitted.Add(d.policy.SubmitGrace))", without: "d.row.Absent.IsZero()", packages: decisions(),
		},
		{
			promise: "I3", name: "a-young-snapshot-ends-no-job", file: watch,
			guard: "	case s.Asked.After(d.row.Submitted.Add(d.policy.SubmitGrace)):\n", without: "	case true:\n", packages: decisions(),
		},
		{
			promise: "I3", name: "the-accounts-are-asked-too", file: submit,
			guard: "	case d.policy.Accounting:\n", without: "	case d.policy.Accounting:\n		return true\n	case false:\n", packages: decisions(),
		},
		{
			promise: "I3", name: "a-kill-does-not-make-the-queue-right", file: "bridge/plan/late.go",
			guard: "if gone && d.settled() && d.lastWord() {", without: "if gone && d.settled() {", packages: decisions(),
		},
		{
			promise: "I3", name: "an-unknown-state-has-not-ended", file: "sbatch/job.go",
			guard: "		return true\n	}\n	return false\n}\n\n// Job is", without: "		return true\n	}\n	return s != StatePending && s != StateRunning\n}\n\n// Job is", packages: []string{"bridge/plan", "sbatch"},
		},
		{
			promise: "I3", name: "no-answer-is-no-snapshot", file: "bridge/pumps.go",
			guard: "		return fmt.Errorf(\"observe Slurm: %w\", err)\n", without: "		snapshot.Asked = now\n", packages: []string{"bridge"},
		},
		{
			promise: "I3", name: "a-failed-look-shows-no-absence", file: "bridge/do.go",
			guard: "rec.Read, n.LookFailure = time.Time{}, err.Error()", without: "n.LookFailure = err.Error()", packages: []string{"bridge"},
		},
		{
			promise: "I3", name: "the-disk-has-its-time", file: watch,
			guard: "	case !d.row.Looked.Before(deadline):\n", without: "	case true:\n", packages: decisions(),
		},
		{
			promise: "I3", name: "a-restart-gives-the-disk-its-time-again", file: "bridge/plan/next.go",
			guard: "		r.Ended = d.now\n", without: "		_ = r\n", packages: decisions(),
		},
		{
			promise: "I3", name: "half-an-answer-is-none", file: "sbatch/parse.go",
			guard: "len(fields)%7 != 0 ||", without: "false ||", packages: []string{"sbatch"}, beyondSim: true,
		},
	}
}

func beginning() []mutation {
	const watch, late = "bridge/plan/watch.go", "bridge/plan/late.go"
	return []mutation{
		{
			promise: "I4", name: "closed-before-the-next", file: watch,
			guard:   "	case d.closingFailed() != \"\" || d.settled() && d.lastWord():\n		d.close()\n",
			without: "	case d.settled() && d.lastWord():\n		d.concluded(d.fromSlurm())\n", packages: decisions(),
		},
		{
			promise: "I4", name: "begun-again-only-where-allowed", file: watch,
			guard: "(!begun && !d.mayHaveBegun() || d.queue.RetryBegun == RetryOnPlatform)", without: "true", packages: decisions(),
		},
		{
			promise: "I4", name: "begun-again-only-for-the-platform", file: watch,
			guard: "v.Cause == spool.CausePlatform && d.row.Stop == nil", without: "d.row.Stop == nil", packages: decisions(),
		},
		{
			promise: "I4", name: "what-is-gone-may-have-begun", file: watch,
			guard: "	case !d.policy.Accounting, job.Nodes != \"\":\n		return true\n", without: "	case true:\n		return false\n", packages: decisions(),
		},
		{
			promise: "I4", name: "a-kill-closes", file: late,
			guard: "	case !d.row.Closed:\n		d.close()\n	case gone", without: "	case gone", packages: decisions(),
		},
		{
			promise: "I4", name: "a-kill-of-what-may-arrive-closes", file: late,
			guard: "	case !d.row.Closed: // a job may still arrive, and must find that it may not begin\n		d.close()\n", without: "", packages: decisions(),
		},
		{
			promise: "I4", name: "another's-token-means-leave", file: "spool/begin.go",
			guard: "standing.Token == s.Token", without: "standing.Token != \"\"", packages: []string{"spool"}, beyondSim: true,
		},
		{
			promise: "I4", name: "a-closed-attempt-has-no-owner", file: "bridge/plan/next.go",
			guard: "	case s.Closed:\n		d.row.Closed = true\n", without: "", packages: decisions(),
		},
		{
			promise: "I4", name: "slurm-does-not-requeue", file: "sbatch/submit.go",
			guard: "\"--no-requeue\", ", without: "", packages: []string{"sbatch", "bridge/plan"}, beyondSim: true,
		},
	}
}

func strays() []mutation {
	const file = "bridge/plan/stray.go"
	return []mutation{
		{
			promise: "I5", name: "a-job-with-a-row-is-none", file: file,
			guard: "if known(p.MarkOf(j)) || comment", without: "if comment", packages: decisions(),
		},
		{
			promise: "I5", name: "another-bridge's-is-none", file: file,
			guard: "|| commentValue(j.Comment, \"bridge\") != p.Bridge {\n			continue", without: "|| commentValue(j.Comment, \"bridge\") == \"\" {\n			continue", packages: decisions(),
		},
		{
			promise: "I5", name: "a-newer-job-stops-the-bridge", file: file,
			guard: "		case stamp.Generation > generation:\n", without: "		case stamp.Generation > generation+1_000_000:\n", packages: decisions(),
		},
		{
			promise: "I5", name: "a-stray-has-its-grace", file: file,
			guard: "now.Sub(since) >= p.StrayGrace", without: "now.Sub(since) >= 0", packages: decisions(),
		},
		{
			promise: "I5", name: "a-stray-is-cancelled", file: file,
			guard: "if p.CancelStrays &&", without: "if p.CancelStrays && false &&", packages: decisions(),
		},
		{
			promise: "I5", name: "only-under-its-name", file: "sbatch/client.go",
			guard: "\"--name=\"+name, ", without: "", packages: []string{"sbatch"}, beyondSim: true,
		},
		{
			promise: "I5", name: "nothing-before-slurm-was-seen", file: "bridge/step.go",
			guard: "	if !b.observed && irrevocable(k) {\n", without: "	if false {\n", packages: []string{"bridge"},
		},
	}
}

func delivering() []mutation {
	const late, done = "bridge/plan/late.go", "bridge/plan/done.go"
	return []mutation{
		{
			promise: "I6", name: "a-failed-upload-is-repeated", file: late,
			guard: "		d.again(c.Failure)\n		d.want(Confirm)", without: "		d.finalize(\"never mind\")\n		d.want(Confirm)", packages: decisions(),
		},
		{
			promise: "I6", name: "results-are-kept-after-the-acknowledgement", file: done,
			guard: "	d.row.KeepUntil = d.now.Add(d.policy.KeepAfterAck)\n", without: "", packages: decisions(),
		},
		{
			promise: "I6", name: "results-are-kept-after-a-restart", file: "bridge/plan/next.go",
			guard: "		r.KeepUntil = least\n", without: "		_ = least\n", packages: decisions(),
		},
		{
			promise: "I6", name: "no-offer-is-taken-while-files-are-removed", file: "bridge/plan/next.go",
			guard: "	case d.row.Releasing, d.row.Dropped:", without: "	case false:", packages: decisions(),
		},
		{
			promise: "I6", name: "an-offer-of-what-is-done-is-answered", file: "bridge/plan/next.go",
			guard: "		d.enter(Collecting, \"the server offered again what was done: the result is delivered again\")\n", without: "", packages: decisions(),
		},
	}
}

func reporting() []mutation {
	const late, done, reports = "bridge/plan/late.go", "bridge/plan/done.go", "bridge/reports.go"
	return []mutation{
		{
			promise: "I6", name: "only-the-server-ends-the-reporting", file: late,
			guard: "	case c.Failure == \"\" && c.State.Final() && !d.thrownAway(*c) && d.askedSince(*c):\n", without: "	case true:\n", packages: decisions(),
		},
		{
			promise: "I6", name: "a-lost-acknowledgement-is-asked-for", file: late,
			guard: "d.news.Restarted || d.news.Unanswered {\n			d.want(Confirm)\n", without: "d.news.Restarted || d.news.Unanswered {\n", packages: decisions(),
		},
		{
			promise: "I6", name: "a-verdict-of-unknown-fate-is-asked-for", file: late,
			guard: "!d.waiting() || d.news.Restarted || d.news.Unanswered {", without: "!d.waiting() {", packages: decisions(),
		},
		{
			promise: "I6", name: "a-verdict-that-is-carried-is-not-repeated", file: late,
			guard: "held(c.State) && !c.Carried &&", without: "held(c.State) &&", packages: decisions(),
		},
		{
			promise: "I6", name: "results-that-were-thrown-away-are-sent-again", file: late,
			guard: "c.State.Final() && !d.thrownAway(*c) && d.askedSince", without: "c.State.Final() && d.askedSince", packages: decisions(),
		},
		{
			promise: "I6", name: "results-that-were-given-up-are-not-sent-again", file: late,
			guard: " && !d.row.Undelivered\n", without: "\n", packages: decisions(),
		},
		{
			promise: "I6", name: "what-came-back-is-reported-again", file: done,
			guard: "	case c.Failure == \"\" && c.State == codalab.StateWorkerOffline && d.askedSince(*c):\n", without: "	case false:\n", packages: decisions(),
		},
		{
			promise: "I6", name: "an-old-answer-repeats-no-report", file: late,
			guard: "return !c.Asked.Before(d.row.Since)", without: "return true", packages: decisions(),
		},
		{
			promise: "I6", name: "nothing-is-removed-on-no-answer", file: done,
			guard: "		return !c.Final && !c.Gone\n", without: "		return false\n", packages: decisions(),
		},
		{
			promise: "I6", name: "a-refused-claim-is-asked-for", file: "bridge/plan/early.go",
			guard: "		d.row.Trouble = answer.Failure\n		d.want(Confirm)\n", without: "		d.drop(\"the claim was refused\")\n", packages: decisions(),
		},
		{
			promise: "I6", name: "what-is-acknowledged-is-not-reported", file: reports,
			guard: "v.acknowledged[bundle] > 0 || !r.due(row, now)", without: "!r.due(row, now)", packages: []string{"bridge"},
		},
		{
			promise: "I6", name: "a-verdict-is-reported-once", file: reports,
			guard: "return old.Phase != plan.Finalizing || old.Reports != row.Reports", without: "return true", packages: []string{"bridge"},
		},
		{
			promise: "I6", name: "a-run-is-in-one-waiting-check-in", file: reports,
			guard: " || r.carried(bundle) {\n			continue", without: " {\n			continue", packages: []string{"bridge"},
		},
	}
}

func verdicts() []mutation {
	const next, late, watch = "bridge/plan/next.go", "bridge/plan/late.go", "bridge/plan/watch.go"
	return []mutation{
		{
			promise: "I7", name: "the-right-token", file: next,
			guard: "rec.Exit.Token == d.row.Begun.Token", without: "rec.Exit.Token != \"\"", packages: decisions(),
		},
		{
			promise: "I7", name: "the-right-attempt", file: next,
			guard: "rec == nil || rec.Attempt != d.row.Attempt", without: "rec == nil", packages: decisions(),
		},
		{
			promise: "I7", name: "the-exit-record-comes-first", file: watch,
			guard: "	d.watch()\n	if d.ownEnd() {\n		return\n	}\n	if d.row.Stop", without: "	d.watch()\n	if d.row.Stop", packages: decisions(),
		},
		{
			promise: "I7", name: "a-late-record-changes-no-reported-verdict", file: late,
			guard: "d.late && d.row.Times.Finalizing.IsZero()", without: "d.late", packages: decisions(),
		},
		{
			promise: "I7", name: "a-failed-delivery-changes-no-reported-verdict", file: late,
			guard: " || !d.row.Times.Finalizing.IsZero() {", without: " {", packages: decisions(),
		},
		{
			promise: "I7", name: "a-kill-changes-no-verdict", file: next,
			guard: "d.row.Verdict != nil || d.row.Stop != nil ||", without: "d.row.Stop != nil ||", packages: decisions(),
		},
		{
			promise: "I7", name: "who-was-told-to-stop-does-not-know-why", file: watch,
			guard: "	case !exit.Terminated:\n", without: "	case true:\n", packages: decisions(),
		},
		{
			promise: "I7", name: "an-answer-of-another-attempt-is-none", file: "bridge/plan/submit.go",
			guard: "if s := d.news.Submitted; s != nil && s.Attempt == d.row.Attempt {", without: "if s := d.news.Submitted; s != nil {", packages: decisions(),
		},
	}
}

func totality() []mutation {
	const next = "bridge/plan/next.go"
	return []mutation{
		{
			promise: "I8", name: "each-phase-has-an-answer", file: next,
			guard: "	case Finalizing:\n		d.finalizing()\n", without: "", packages: decisions(),
		},
		{
			promise: "I8", name: "a-failure-is-followed-by-a-pause", file: next,
			guard: "d.row.Due = d.now.Add(backoff(d.row.Tries))", without: "d.row.Due = d.now", packages: decisions(),
		},
		{
			promise: "I8", name: "a-clock-set-back-does-not-hold-a-row", file: next,
			guard: "		r.Due = latest\n", without: "		_ = latest\n", packages: decisions(),
		},
		{
			promise: "I8", name: "a-clock-set-back-proves-nothing", file: next,
			guard: "			*t = d.now\n", without: "			_ = t\n", packages: decisions(),
		},
		{
			promise: "I8", name: "patience-is-not-a-matter-of-the-clock-alone", file: next,
			guard: " && d.row.Tries >= leastTries", without: " && leastTries > 0", packages: decisions(),
		},
	}
}
