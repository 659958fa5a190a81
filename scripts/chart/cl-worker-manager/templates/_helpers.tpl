{{/* The name of all objects: that of the release, which also tells its workers from those of other releases. */}}
{{- define "name" -}}
{{- $name := .Release.Name | trunc 20 | trimSuffix "-" -}}
{{- if ne $name .Release.Name -}}
{{- fail (printf "the release's name may have 20 characters: it is the --manager-name, and %q is longer" .Release.Name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* The file with the manager's token; empty for a login with a password. */}}
{{- define "tokenFile" -}}
{{- if and .Values.tokenSecret .Values.loginSecret -}}
{{- fail "tokenSecret and loginSecret: give one of them" -}}
{{- else if .Values.tokenSecret -}}
/etc/codalab/token
{{- else if not .Values.loginSecret -}}
{{- fail "give tokenSecret, a Secret with a token of cl-server, or loginSecret for CodaLab's own server" -}}
{{- end -}}
{{- end -}}

{{- define "labels" -}}
app.kubernetes.io/name: cl-worker-manager
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The account of workers that create pods for bundles. */}}
{{- define "workerAccount" -}}
{{ include "name" . }}-worker
{{- end -}}
