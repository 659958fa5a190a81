package codalab_test

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestSecretsAreNamedAsVariablesThatMeanNothingToARun(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"WANDB_API_KEY": "", "_x9": "", "hf_token": "", "CODALAB_PASSWORD": "", strings.Repeat("A", 100): "",
		"":                       "named as a variable",
		"9A":                     "named as a variable",
		"A-B":                    "named as a variable",
		"A=B":                    "named as a variable",
		"A B":                    "named as a variable",
		"Ä":                      "named as a variable",
		"A\n":                    "named as a variable",
		strings.Repeat("A", 101): "100 characters",
		"PATH":                   "meaning of its own",
		"HOME":                   "meaning of its own",
		"LD_PRELOAD":             "meaning of its own",
		"SLURM_JOB_ID":           "meaning of its own",
		"CUDA_VISIBLE_DEVICES":   "meaning of its own",
		"APPTAINERENV_X":         "meaning of its own",
		"BASH_ENV":               "meaning of its own",
	} {
		if got := text(codalab.CheckSecretName(name)); says == "" && got != "" || !strings.Contains(got, says) {
			t.Errorf("%q: %q, want %q", name, got, says)
		}
	}
}

func TestSecretIsTextThatFitsIntoAVariable(t *testing.T) {
	t.Parallel()
	for value, says := range map[string]string{
		"x": "", "two\nlines": "", strings.Repeat("x", codalab.MaxSecretBytes): "",
		"": "cannot be empty", strings.Repeat("x", codalab.MaxSecretBytes+1): "16384 bytes, not 16385",
		"a\x00b": "zero characters", "a\xffb": "UTF-8", "a\uFFFDb": "UTF-8",
	} {
		if got := text(codalab.CheckSecretValue(value)); says == "" && got != "" || !strings.Contains(got, says) {
			t.Errorf("%.20q: %q, want %q", value, got, says)
		}
	}
}

func TestRunNamesSecretsThatCanBe(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind  string
		names any
		says  string
	}{
		{codalab.TypeRun, []any{"A", "B"}, ""},
		{codalab.TypeRun, nil, ""},
		{codalab.TypeRun, []any{"A", "A"}, "Secret A is named twice"},
		{codalab.TypeRun, []any{"PATH"}, "cannot be named PATH"},
		{codalab.TypeRun, []any{"A", 1.0}, "should be of type list"},
		{codalab.TypeRun, "A", "should be of type list"},
		{codalab.TypeDataset, []any{"A"}, "Unexpected metadata key: secrets"},
	} {
		err := codalab.CheckMetadata(test.kind, codalab.Metadata{codalab.SecretsKey: test.names}, false)
		if got := text(err); test.says == "" && got != "" || !strings.Contains(got, test.says) {
			t.Errorf("%v: %q, want %q", test.names, got, test.says)
		}
	}
	many := make([]any, codalab.MaxSecrets+1)
	for i := range many {
		many[i] = "A" + strings.Repeat("x", i%90) + string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	if got := text(codalab.CheckMetadata(codalab.TypeRun, codalab.Metadata{codalab.SecretsKey: many}, false)); !strings.Contains(got, "100 secrets, not 101") {
		t.Error(got)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
