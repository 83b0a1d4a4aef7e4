{{/* The name of this release's objects: fullnameOverride, or the release's name with "pilotfish" in it. */}}
{{- define "pilotfish.fullname" -}}
{{- $values := include "pilotfish.values" . | fromYaml }}
{{- $release := .root.Release.Name }}
{{- $name := ternary $release (printf "%s-pilotfish" $release) (contains "pilotfish" $release) }}
{{- $values.fullnameOverride | default $name | trunc 52 | trimSuffix "-" }}
{{- end -}}

{{/* "true" if the sidecar gets a pilotfish.toml: a generated one, or an existing ConfigMap. */}}
{{- define "pilotfish.hasConfig" -}}
{{- $values := include "pilotfish.values" . | fromYaml }}
{{- if or $values.settings $values.kafka $values.configMapName }}true{{ end }}
{{- end -}}

{{- define "pilotfish.configMapName" -}}
{{- $values := include "pilotfish.values" . | fromYaml }}
{{- $values.configMapName | default (printf "%s-config" (include "pilotfish.fullname" .)) }}
{{- end -}}

{{/*
pilotfish.toml: settings by their names in docs/settings.md, Kafka's below [kafka]. JSON's texts, numbers and
lists are valid TOML. Numbers have no exponent: Helm reads 16777216 as 1.6777216e+07.
*/}}
{{- define "pilotfish.toml" -}}
{{- $values := include "pilotfish.values" . | fromYaml }}
{{- range $name, $value := $values.settings }}
{{ $name }} = {{ toJson $value }}
{{- end }}

[kafka]
{{- if $values.bootstrapServers }}
"bootstrap.servers" = {{ toJson $values.bootstrapServers }}
{{- end }}
{{- range $name, $value := $values.kafka }}
{{- if not (and (eq $name "bootstrap.servers") $values.bootstrapServers) }}
{{ toJson $name }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{ end -}}

{{/* The whole ConfigMap; nothing if it would be empty, or if configMapName names an existing one. */}}
{{- define "pilotfish.configMap" -}}
{{- $values := include "pilotfish.values" . | fromYaml }}
{{- if and (include "pilotfish.hasConfig" .) (not $values.configMapName) -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "pilotfish.configMapName" . | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    app.kubernetes.io/name: pilotfish
    app.kubernetes.io/component: kafka-sidecar
    app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
    app.kubernetes.io/managed-by: {{ .root.Release.Service }}
data:
  pilotfish.toml: |
    {{- include "pilotfish.toml" . | trim | nindent 4 }}
{{- end }}
{{- end -}}
