package program

import (
	"errors"
	"log/slog"

	"github.com/spf13/pflag"
)

// LogFormat is the form of a log's lines: text or json.
type LogFormat string

// The formats. docs/operators/monitoring.md has the keys of lines.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// LogFormatFlag adds the flag --log-format.
func LogFormatFlag(flags *pflag.FlagSet) *LogFormat {
	f := LogText
	flags.Var(&f, "log-format", "the `form` of the log's lines on standard error: text or json")
	return &f
}

// String is the flag's value.
func (f *LogFormat) String() string { return string(*f) }

// Type is empty: the flag's help has a word of its own.
func (f *LogFormat) Type() string { return "" }

// Set is for pflag.
func (f *LogFormat) Set(text string) error {
	switch *f = LogFormat(text); *f {
	case LogText, LogJSON:
		return nil
	}
	return errors.New("want text or json")
}

// LogAs returns a log on standard error: all of it with verbose, else without the details. Each line of a JSON log is an
// object with the keys time, level and msg, and those of the event.
func (p Process) LogAs(f LogFormat, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	if f == LogJSON {
		return slog.New(slog.NewJSONHandler(p.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(p.Stderr, options))
}
