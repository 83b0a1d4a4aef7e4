{{/*
Rejects invalid values; the message has the place and the remedy. The schema of chart pilotfish rejects these
and more. A team's own chart has no such schema for its `pilotfish:`, so harmful values are found here. Takes
the merged values, prints nothing.
*/}}
{{- define "pilotfish.check" -}}
{{- $known := keys (include "pilotfish.defaults" . | fromYaml) | sortAlpha }}
{{- range $name := keys . | sortAlpha }}
{{- if not (has $name $known) }}
{{- fail (printf "pilotfish.%s: there is no such value; there are %s" $name (join ", " $known)) }}
{{- end }}
{{- end }}
{{- include "pilotfish.checkKinds" . }}
{{- range $broker := splitList "," (.bootstrapServers | default "") }}
{{- if and $.bootstrapServers (not (regexMatch "^[^\\s,]+:[0-9]{1,5}$" (trim $broker))) }}
{{- fail (printf "pilotfish.bootstrapServers: %q is not HOST:PORT; give one or more, separated by commas" $broker) }}
{{- end }}
{{- end }}
{{- include "pilotfish.checkNames" . }}
{{- include "pilotfish.checkSecrets" . }}
{{- include "pilotfish.checkListeners" . }}
{{- include "pilotfish.checkSpool" . }}
{{- include "pilotfish.checkMemory" . }}
{{- end -}}

{{/* Each value must have the type of its default, and so must the parts of image, readiness and spool. */}}
{{- define "pilotfish.checkKinds" -}}
{{- $defaults := include "pilotfish.defaults" . | fromYaml }}
{{- range $name, $value := . }}
{{- include "pilotfish.checkKind" (dict "place" $name "value" $value "like" (index $defaults $name)) }}
{{- end }}
{{- range $place := list "image" "readiness" "spool" }}
{{- $known := index $defaults $place }}
{{- range $name, $value := index $ $place }}
{{- if not (hasKey $known $name) }}
{{- fail (printf "pilotfish.%s.%s: there is no such value; there are %s" $place $name (keys $known | sortAlpha | join ", ")) }}
{{- end }}
{{- include "pilotfish.checkKind" (dict "place" (printf "%s.%s" $place $name) "value" $value "like" (index $known $name)) }}
{{- end }}
{{- end }}
{{- range $name := list "admin_port" "api_port" "drain_delay_ms" "drain_timeout_ms" "liveness_timeout_ms" "startup_max_wait_ms" }}
{{- if hasKey $.settings $name }}
{{- include "pilotfish.checkKind" (dict "place" (printf "settings.%s" $name) "value" (index $.settings $name) "like" 0) }}
{{- end }}
{{- end }}
{{- if and .image.digest (not (regexMatch "^[a-z0-9+._-]+:[0-9a-fA-F]{32,}$" .image.digest)) }}
{{- fail (printf "pilotfish.image.digest: %q is not a digest; give it as sha256:…, as the registry shows it" .image.digest) }}
{{- end }}
{{- end -}}

{{/* Takes (dict "place" … "value" … "like" …). All numbers are one type; digits in a text are one too. */}}
{{- define "pilotfish.checkKind" -}}
{{- $words := dict "map" "a map of names and values" "slice" "a list" "bool" "true or false" "string" "a text" }}
{{- $wanted := kindOf .like }}
{{- if not (hasKey $words $wanted) }}
{{- $isNumber := has (kindOf .value) (list "int" "int64" "float64") }}
{{- if not (or $isNumber (regexMatch "^[0-9]{1,15}$" (toString .value))) }}
{{- fail (printf "pilotfish.%s: must be a whole number, got %q" .place (toString .value)) }}
{{- end }}
{{- else if ne (kindOf .value) $wanted }}
{{- fail (printf "pilotfish.%s: must be %s, got %s" .place (index $words $wanted) (kindOf .value)) }}
{{- end }}
{{- end -}}

{{/* Names of settings: only known ones, and no secrets, which anyone could read in a ConfigMap. */}}
{{- define "pilotfish.checkNames" -}}
{{- $own := include "pilotfish.settingNames" . | fromYamlArray }}
{{- range $name := keys (.settings | default dict) | sortAlpha }}
{{- if not (has $name $own) }}
{{- fail (printf "pilotfish.settings.%s: unknown setting; `pilotfish settings` lists them, with underscores here" $name) }}
{{- end }}
{{- end }}
{{- $kafka := include "pilotfish.kafkaNames" . | fromYamlArray }}
{{- $secret := include "pilotfish.secretKafkaNames" . | fromYamlArray }}
{{- range $name, $value := (.kafka | default dict) }}
{{- if kindIs "map" $value }}
{{- fail (printf "pilotfish.kafka.%s: write Kafka's names in one piece and in quotes, such as \"linger.ms\": 5" $name) }}
{{- end }}
{{- if has $name $secret }}
{{- fail (printf "pilotfish.kafka: %s is a secret and would lie in a ConfigMap; mount a Secret by pilotfish.secrets and set %s.file" $name $name) }}
{{- end }}
{{- if not (has $name $kafka) }}
{{- fail (printf "pilotfish.kafka: %s is no setting that Pilotfish honours; `pilotfish settings --kafka` lists them" $name) }}
{{- end }}
{{- end }}
{{- range $place := list "settings" "kafka" }}
{{- range $name, $value := (index $ $place | default dict) }}
{{- range $item := ternary $value (list $value) (kindIs "slice" $value) }}
{{- if has (kindOf $item) (list "map" "slice" "invalid") }}
{{- fail (printf "pilotfish.%s: %s must be a text, a number, true or false, or a list of these without nulls" $place $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Probes come to the pod's address, and each listener needs its own port. */}}
{{- define "pilotfish.checkListeners" -}}
{{- if not (has (.settings.admin_host | default "0.0.0.0") (list "0.0.0.0" "::")) }}
{{- fail "pilotfish.settings.admin_host: probes use the pod's address; remove it, or give :: for IPv6" }}
{{- end }}
{{- $api := ternary .settings.api_port 8085 (hasKey .settings "api_port") | int | toString }}
{{- if eq (include "pilotfish.adminPort" .) $api }}
{{- fail (printf "pilotfish.settings.admin_port: %s is the API's port; give another" (include "pilotfish.adminPort" .)) }}
{{- end }}
{{- end -}}

{{/* A spool needs its own volume, one that survives a restart. */}}
{{- define "pilotfish.checkSpool" -}}
{{- if hasKey .settings "spool_folder" }}
{{- fail "pilotfish.settings.spool_folder: is set by pilotfish.spool, which mounts its volume: set pilotfish.spool.enabled and pilotfish.spool.volume" }}
{{- end }}
{{- if .spool.enabled }}
{{- if ne (len .spool.volume) 1 }}
{{- fail "pilotfish.spool.volume: must be one volume source as Kubernetes has them, such as persistentVolumeClaim: {claimName: orders-spool}" }}
{{- end }}
{{- if eq (toString (((.spool.volume).emptyDir).medium)) "Memory" }}
{{- fail "pilotfish.spool.volume: an emptyDir in memory forgets what was answered with 202; name a disk that survives, such as a persistentVolumeClaim" }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Secrets: each name once, and every path below their folder must be in a mounted one. */}}
{{- define "pilotfish.checkSecrets" -}}
{{- $names := list }}
{{- range $index, $secret := .secrets }}
{{- if not (and (kindIs "map" $secret) $secret.name $secret.secretName) }}
{{- fail (printf "pilotfish.secrets[%d]: must have a name, which becomes a folder, and a secretName" $index) }}
{{- end }}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$" $secret.name) }}
{{- fail (printf "pilotfish.secrets[%d].name: %q must be lower-case letters, digits and hyphens, 40 at most" $index $secret.name) }}
{{- end }}
{{- if has $secret.name $names }}
{{- fail (printf "pilotfish.secrets[%d].name: %s is named twice" $index $secret.name) }}
{{- end }}
{{- $names = append $names $secret.name }}
{{- end }}
{{- range $place := list "settings" "kafka" }}
{{- range $name, $value := (index $ $place | default dict) }}
{{- $folder := regexFind "/etc/pilotfish/secrets/[^/]*" (toString $value) | trimPrefix "/etc/pilotfish/secrets/" }}
{{- if and (contains "/etc/pilotfish/secrets/" (toString $value)) (not (has $folder $names)) }}
{{- fail (printf "pilotfish.%s: %s names a file in /etc/pilotfish/secrets/%s, and pilotfish.secrets has nothing of the name %q" $place $name $folder $folder) }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
The memory limit must have room for the buffers that are given; the sidecar sizes the others for the limit. The
figures are those of service/base/memory_limit.py. A quantity with an exponent is not checked.
*/}}
{{- define "pilotfish.checkMemory" -}}
{{- $limit := toString (((.resources).limits).memory | default "") }}
{{- $units := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 }}
{{- $unit := regexFind "[a-zA-Z]*$" $limit }}
{{- if and (regexMatch "^[0-9]+([.][0-9]+)?[a-zA-Z]*$" $limit) (hasKey $units $unit) }}
{{- $figures := include "pilotfish.memoryFigures" . | fromYaml }}
{{- $buffer := float64 (index .kafka "buffer.memory" | default (max $figures.buffer (index .kafka "max.request.size" | default 0))) }}
{{- $waiting := float64 (.settings.max_waiting_bytes | default $figures.waiting) }}
{{- $streams := float64 (ternary .settings.max_streams $figures.streams (hasKey .settings "max_streams")) }}
{{- $needed := addf $figures.own (mulf $figures.times (addf $buffer $waiting)) (mulf $figures.stream $streams) }}
{{- if .spool.enabled }}
{{- $needed = addf $needed $figures.spool }}
{{- end }}
{{- if or .settings.events_topic .settings.events_folder }}
{{- $needed = addf $needed $figures.events }}
{{- end }}
{{- $needed = maxf $needed $figures.least }}
{{- if lt (mulf (float64 (regexFind "^[0-9.]+" $limit)) (get $units $unit)) $needed }}
{{- fail (printf "pilotfish.resources.limits.memory: %s is too small for these settings: give %dMi, or lower buffer.memory, max.request.size, max_waiting_bytes or max_streams" $limit (int64 (ceil (divf $needed 1048576.0)))) }}
{{- end }}
{{- end }}
{{- end -}}
