package batchtest

import (
	"fmt"
	"slices"
)

// taskSchema names the properties of a new task that the stand-in accepts, by the path of their object (OpenAPI of the
// Batch service: BatchTaskCreateOptions and the definitions that it refers to).
var taskSchema = map[string][]string{ //nolint:gochecknoglobals // a constant
	"": {
		"id", "displayName", "commandLine", "containerSettings", "exitConditions", "resourceFiles", "outputFiles", "environmentSettings", "affinityInfo",
		"constraints", "requiredSlots", "userIdentity", "multiInstanceSettings", "dependsOn", "applicationPackageReferences", "authenticationTokenSettings",
	},
	".containerSettings":                 {"containerRunOptions", "imageName", "registry", "workingDirectory", "containerHostBatchBindMounts"},
	".environmentSettings":               {"name", "value"},
	".constraints":                       {"maxWallClockTime", "retentionTime", "maxTaskRetryCount"},
	".outputFiles":                       {"filePattern", "destination", "uploadOptions"},
	".outputFiles.destination":           {"container"},
	".outputFiles.destination.container": {"path", "containerUrl", "identityReference", "uploadHeaders"},
	".outputFiles.uploadOptions":         {"uploadCondition"},
}

// required are the properties that the service requires.
var required = map[string][]string{ //nolint:gochecknoglobals // a constant
	"": {"id", "commandLine"}, ".containerSettings": {"imageName"}, ".environmentSettings": {"name"}, ".outputFiles": {"filePattern", "destination", "uploadOptions"},
	".outputFiles.destination.container": {"containerUrl"}, ".outputFiles.uploadOptions": {"uploadCondition"},
}

// checkTask returns the code and the reason of the service's refusal; empty if the task is a good one.
func checkTask(body object) (code, reason string) {
	if code, reason := checkObject("", body); code != "" {
		return code, reason
	}
	if id, _ := body["id"].(string); !idForm.MatchString(id) {
		return "InvalidPropertyValue", "The specified id is invalid: " + id
	}
	line, _ := body["commandLine"].(string)
	if _, err := Split(line); err != nil {
		return "InvalidPropertyValue", err.Error()
	}
	return "", ""
}

func checkObject(path string, o object) (code, reason string) {
	names, known := taskSchema[path]
	if !known {
		return "", ""
	}
	for _, name := range required[path] {
		if o[name] == nil || o[name] == "" {
			return "MissingRequiredProperty", fmt.Sprintf("%s.%s is required", path, name)
		}
	}
	for name, value := range o {
		if !slices.Contains(names, name) {
			return "UnsupportedProperty", fmt.Sprintf("%s.%s is no property", path, name)
		}
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, element := range list {
			if inner, ok := element.(object); ok {
				if code, reason := checkObject(path+"."+name, inner); code != "" {
					return code, reason
				}
			}
		}
	}
	return "", ""
}
