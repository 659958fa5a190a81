package plan

import "github.com/cl-slurm/cl-slurm/codalab"

// Fill gives the bundle new contents.
func (b Bundle) Fill(contents string, extent codalab.Extent) Bundle {
	b = b.own()
	b.Contents, b.Entries = contents, extent.Entries
	b.setSize(extent.Bytes)
	return b
}

// Empty takes the contents from the bundle.
func (b Bundle) Empty() Bundle { return b.Fill("", codalab.Extent{}) }

// TakeResults gives a run on a worker the results that the worker has left on the shared disk.
func (b Bundle) TakeResults(results string, extent codalab.Extent) Bundle {
	if b.Contents != "" || !b.State.OnWorker() {
		return b
	}
	return b.Fill(results, extent)
}

// Announce counts bytes of an upload before they arrive. It leaves a run's size, which is its worker's report.
func (b Bundle) Announce(bytes int64) Bundle {
	if b.State.OnWorker() || b.State.Final() {
		return b
	}
	b = b.own()
	b.setSize(b.DataSize + bytes)
	return b
}

// Uncount takes back the announced bytes of an upload without contents: they count while they arrive. It
// leaves a run's size.
func (b Bundle) Uncount() Bundle {
	if b.Contents != "" || b.DataSize == 0 || b.State.OnWorker() || b.State.Final() {
		return b
	}
	return b.Empty()
}

// EndUpload ends an upload in a final state; an empty state leaves the bundle as it is. It returns false
// for a bundle that has ended already.
func (b Bundle) EndUpload(state codalab.State) (Bundle, bool) {
	if b.State.Final() {
		return b, false
	}
	if state != "" {
		b = b.own()
		b.end(state)
	}
	return b, true
}

// FailUpload fails a bundle whose upload has failed. A run on a worker does not fail: its worker reports
// its end.
func (b Bundle) FailUpload(message string) Bundle {
	if b.State.Final() || b.State.OnWorker() {
		return b
	}
	return b.Fail(message)
}

// Making returns a make bundle as the server begins to make it, and whether it may begin. One that is in
// state making was cut off by the server's end: it is staged again.
func (b Bundle) Making() (next Bundle, begin bool) {
	switch b.State {
	case codalab.StateStaged:
		b.State = codalab.StateMaking
		return b, true
	case codalab.StateMaking:
		b.State = codalab.StateStaged
	default: // other states have another next one
	}
	return b, false
}

// Made ends the making of a bundle. It returns false if the bundle was killed.
func (b Bundle) Made() (Bundle, bool) {
	if b.State != codalab.StateMaking {
		return b, false
	}
	b = b.own()
	b.end(codalab.StateReady)
	return b, true
}

// FailMaking fails a bundle that is being made.
func (b Bundle) FailMaking(message string) Bundle {
	if b.State != codalab.StateMaking {
		return b
	}
	return b.Fail(message)
}
