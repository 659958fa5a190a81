package codalab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Unread is an element of a server's answer that is not a message, or has an unknown type.
type Unread struct {
	// Type and UUID are the message's, if they could be read.
	Type MessageType
	UUID string
	// Err is the error of reading the message; nil for an unknown type.
	Err error
}

// ParseMessages reads the answer to a check-in: one message or a list of messages, in which
// null stands for none. It decodes each message by itself, so that a bad one does not spoil
// the others. It fails only if the whole answer is not JSON as Python writes it.
func ParseMessages(body []byte) ([]Message, []Unread, error) {
	body = QuoteNonNumbers(body)
	var list []json.RawMessage
	if err := json.Unmarshal(body, &list); err != nil {
		var one json.RawMessage
		if err := json.Unmarshal(body, &one); err != nil {
			return nil, nil, fmt.Errorf("decode check-in answer: %w", err)
		}
		list = []json.RawMessage{one}
	}
	var messages []Message
	var unread []Unread
	for _, element := range list {
		if bytes.Equal(element, []byte("null")) {
			continue
		}
		m, err := parseMessage(element)
		switch {
		case err != nil:
			unread = append(unread, Unread{Type: m.Type, UUID: m.bundle(), Err: err})
		case !m.Type.known():
			unread = append(unread, Unread{Type: m.Type, UUID: m.bundle()})
		default:
			messages = append(messages, m)
		}
	}
	return messages, unread, nil
}

// parseMessage decodes one message. With an error it returns the type and the bundle's uuid,
// if they could be read.
func parseMessage(element []byte) (Message, error) {
	var head struct {
		Type   MessageType `json:"type"`
		UUID   string      `json:"uuid"`
		Bundle *struct {
			UUID string `json:"uuid"`
		} `json:"bundle"`
	}
	err := json.Unmarshal(element, &head) // goes on after a value of the wrong type
	m := Message{Type: head.Type, UUID: head.UUID}
	if head.Bundle != nil {
		m.Bundle = &RunBundle{UUID: head.Bundle.UUID}
	}
	switch {
	case err == nil && head.Type == "":
		err = errors.New("it has no type")
	case err == nil && head.Type.known() && m.bundle() == "":
		err = errors.New("it names no bundle")
	case err == nil && head.Type.known():
		whole := Message{}
		if err = json.Unmarshal(element, &whole); err == nil {
			return whole, nil
		}
	}
	if err != nil {
		return m, fmt.Errorf("decode message: %w", err)
	}
	return m, nil
}

// bundle is the uuid of a message's bundle; empty if it names none.
func (m Message) bundle() string {
	if m.Type != MessageRun {
		return m.UUID
	}
	if m.Bundle == nil {
		return ""
	}
	return m.Bundle.UUID
}

func (t MessageType) known() bool {
	switch t {
	case MessageRun, MessageKill, MessageMarkFinalized, MessageRead, MessageWrite, MessageNetcat:
		return true
	}
	return false
}

// MarshalJSON writes empty texts, too, where CodaLab's own worker needs them
// (codalab/worker/worker.py: checkin).
func (m Message) MarshalJSON() ([]byte, error) {
	type plain Message
	var out any = plain(m)
	switch m.Type {
	case MessageRead:
		out = struct {
			plain
			Path string `json:"path"`
		}{plain(m), m.Path}
	case MessageWrite:
		out = struct {
			plain
			Subpath string `json:"subpath"`
			String  string `json:"string"`
		}{plain(m), m.Subpath, m.String}
	case MessageNetcat:
		out = struct {
			plain
			Message string `json:"message"`
		}{plain(m), m.Message}
	default: // the others have no texts that may be empty
	}
	data, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	return data, nil
}

// UnmarshalJSON accepts numbers in any form that Python may write.
func (m *Message) UnmarshalJSON(data []byte) error {
	type plain Message
	in := struct {
		*plain
		SocketID number `json:"socket_id"`
	}{plain: (*plain)(m)}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	return readNumbers(
		field{"socket_id", in.SocketID, &m.SocketID},
	)
}

// UnmarshalJSON accepts numbers in any form that Python may write.
func (a *ReadArgs) UnmarshalJSON(data []byte) error {
	type plain ReadArgs
	in := struct {
		*plain
		Depth         number `json:"depth"`
		First         number `json:"first"`
		Offset        number `json:"offset"`
		Length        number `json:"length"`
		HeadLines     number `json:"num_head_lines"`
		TailLines     number `json:"num_tail_lines"`
		MaxLineLength number `json:"max_line_length"`
	}{plain: (*plain)(a)}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	var depth, first, head, tail, line int64
	err := readNumbers(
		field{"depth", in.Depth, &depth},
		field{"first", in.First, &first},
		field{"offset", in.Offset, &a.Offset},
		field{"length", in.Length, &a.Length},
		field{"num_head_lines", in.HeadLines, &head},
		field{"num_tail_lines", in.TailLines, &tail},
		field{"max_line_length", in.MaxLineLength, &line},
	)
	a.Depth, a.First, a.HeadLines, a.TailLines, a.MaxLineLength = int(depth), int(first), int(head), int(tail), int(line)
	return err
}

// The largest requests that a run message may contain. Sums of larger numbers could overflow.
const (
	MaxCount   = 1 << 31
	MaxSeconds = 100 * 365 * 24 * 3600
	MaxBytes   = 1 << 60
)

// UnmarshalJSON accepts numbers that no worker can use: the server repeats a run message until a
// worker claims the run, so a worker must be able to claim it and fail it. Invalid then describes the
// number.
func (r *Resources) UnmarshalJSON(data []byte) error {
	type plain Resources
	in := struct {
		*plain
		CPUs     number  `json:"cpus"`
		GPUs     number  `json:"gpus"`
		Time     number  `json:"time"`
		Memory   number  `json:"memory"`
		Disk     number  `json:"disk"`
		RunsLeft *number `json:"runs_left"`
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(data, &in); err != nil {
		r.Invalid = "The server's request cannot be read: " + err.Error() + "."
		return nil //nolint:nilerr // Invalid says it
	}
	r.RunsLeft = nil
	if in.RunsLeft != nil && in.RunsLeft.bad == "" {
		r.RunsLeft = &in.RunsLeft.value
	}
	for _, f := range []struct {
		option string
		given  number
		most   int64
		to     *int64
	}{
		{"--request-cpus", in.CPUs, MaxCount, &r.CPUs},
		{"--request-gpus", in.GPUs, MaxCount, &r.GPUs},
		{"--request-time", in.Time, MaxSeconds, &r.Time},
		{"--request-memory", in.Memory, MaxBytes, &r.Memory},
		{"--request-disk", in.Disk, MaxBytes, &r.Disk},
	} {
		if f.given.bad == "" && f.given.value >= 0 && f.given.value <= f.most {
			*f.to = f.given.value
			continue
		}
		if r.Invalid == "" {
			r.Invalid = outOfRange(f.option, f.given, f.most)
		}
	}
	return nil
}

func outOfRange(option string, given number, most int64) string {
	sentence := fmt.Sprintf("The server sent %s for %s, which is not between 0 and %d.", given, option, most)
	if given.bad == "" && given.value < 0 {
		// codalab/server/bundle_manager.py: _compute_request_time, _compute_request_disk
		sentence += " A server sends a negative number, for example, when the bundle's owner has used up a quota."
	}
	return sentence
}
