{{/*
The defaults for values that a team does not set. ../../pilotfish/values.yaml explains the keys; a test
compares both. They are not in this chart's values.yaml: there they would have to be reached by the
dependency's name, which a team may alias.
*/}}
{{- define "pilotfish.defaults" -}}
image:
  repository: pilotfish
  tag: "0.1.0"
  digest: ""
  pullPolicy: IfNotPresent
bootstrapServers: ""
nativeSidecar: true
appContainer: ""
appGraceSeconds: 30
settings: {}
kafka: {}
configMapName: ""
fullnameOverride: ""
secrets: []
readiness:
  enabled: false
spool:
  enabled: false
  volume: {}
resources:
  requests:
    cpu: 50m
    memory: 128Mi
  limits:
    memory: 256Mi
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop:
      - ALL
  readOnlyRootFilesystem: true
  runAsGroup: 10001
  runAsNonRoot: true
  runAsUser: 10001
  seccompProfile:
    type: RuntimeDefault
extraEnv: []
extraVolumeMounts: []
extraVolumes: []
{{- end -}}

{{/* A team's values as YAML, without nulls, which count as unset: values, settings, parts of the image. */}}
{{- define "pilotfish.given" -}}
{{- $given := dict }}
{{- range $name, $value := . }}
{{- if and (kindIs "map" $value) (has $name (list "image" "readiness" "spool" "settings" "kafka")) }}
{{- $part := dict }}
{{- range $key, $of := $value }}
{{- if not (kindIs "invalid" $of) }}
{{- $_ := set $part $key $of }}
{{- end }}
{{- end }}
{{- $_ := set $given $name $part }}
{{- else if not (kindIs "invalid" $value) }}
{{- $_ := set $given $name $value }}
{{- end }}
{{- end }}
{{- $given | toYaml }}
{{- end -}}

{{/*
A team's values merged over the defaults, as YAML. Every template begins with it, so each rejects invalid
values. Takes (dict "root" $ "values" .Values.pilotfish).
*/}}
{{- define "pilotfish.values" -}}
{{- if or (not (kindIs "map" .)) (not (hasKey . "root")) (not (hasKey . "values")) }}
{{- fail "pilotfish-lib: a template wants (dict \"root\" $ \"values\" .Values.pilotfish)" }}
{{- end }}
{{- $values := .values | default dict }}
{{- if not (kindIs "map" $values) }}
{{- fail (printf "pilotfish: must be a map of values, got %s" (kindOf $values)) }}
{{- end }}
{{- $given := include "pilotfish.given" $values | fromYaml }}
{{- $merged := mergeOverwrite (include "pilotfish.defaults" . | fromYaml) $given }}
{{- /* These are replaced as a whole: in a merge nobody could omit a part. */}}
{{- range $name := list "resources" "securityContext" }}
{{- if hasKey $values $name }}
{{- $_ := set $merged $name (index $values $name | default dict) }}
{{- end }}
{{- end }}
{{- include "pilotfish.check" $merged }}
{{- $merged | toYaml }}
{{- end -}}
