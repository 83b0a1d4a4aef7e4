{{/* The pod's fields besides the container: labels, annotations, its grace period. */}}

{{- define "pilotfish.podLabels" -}}
pilotfish-sidecar: "true"
{{- end -}}

{{/* With the checksum, pods are replaced when the config changes: it is read only at the start. */}}
{{- define "pilotfish.podAnnotations" -}}
{{- $values := include "pilotfish.values" . | fromYaml -}}
checksum/pilotfish-config: {{ include "pilotfish.checksum" . }}
{{- with $values.appContainer }}
kubectl.kubernetes.io/default-container: {{ quote . }}
{{- end }}
{{- end -}}

{{/* Of an external ConfigMap only the name is known. */}}
{{- define "pilotfish.checksum" -}}
{{- $values := include "pilotfish.values" . | fromYaml }}
{{- $values.configMapName | default (include "pilotfish.toml" .) | sha256sum }}
{{- end -}}

{{/*
Seconds from the first SIGTERM to SIGKILL, which app and sidecar share: the app's time, the sidecar's delay
and drain, and 5. A whole number, rounded up.
*/}}
{{- define "pilotfish.terminationGracePeriodSeconds" -}}
{{- $values := include "pilotfish.values" . | fromYaml }}
{{- $settings := $values.settings }}
{{- $drain := ternary $settings.drain_timeout_ms 20000 (hasKey $settings "drain_timeout_ms") | int }}
{{- $delay := include "pilotfish.drainDelayMs" $values | int }}
{{- add (int $values.appGraceSeconds) (div (add $delay $drain 999) 1000) 5 }}
{{- end -}}
