{{/*
The sidecar's variables. They override pilotfish.toml, so only settings that a pod requires are here. No
secrets: those are files.
*/}}
{{- define "pilotfish.env" -}}
{{- $values := include "pilotfish.values" . | fromYaml -}}
- name: PILOTFISH_ADMIN_HOST
  value: {{ $values.settings.admin_host | default "0.0.0.0" | quote }}
{{- if include "pilotfish.hasConfig" . }}
- name: PILOTFISH_CONFIG
  value: /etc/pilotfish/pilotfish.toml
{{- end }}
{{- with $values.bootstrapServers }}
- name: PILOTFISH_KAFKA_BOOTSTRAP_SERVERS
  value: {{ quote . }}
{{- end }}
{{- with $values.settings.admin_port }}
# `pilotfish wait` reads it too.
- name: PILOTFISH_ADMIN_PORT
  value: {{ . | int | quote }}
{{- end }}
{{- if not $values.nativeSidecar }}
# App and sidecar get SIGTERM at the same time: the sidecar keeps serving while the app drains.
- name: PILOTFISH_DRAIN_DELAY_MS
  value: {{ include "pilotfish.drainDelayMs" $values | quote }}
{{- end }}
{{- if $values.spool.enabled }}
# A subfolder of the mount: the mount may have lost+found, and this folder can belong to its owner only.
- name: PILOTFISH_SPOOL_FOLDER
  value: /var/lib/pilotfish/spool/log
{{- end }}
{{- with $values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A native sidecar gets SIGTERM after the app has ended; a legacy one has to delay its own end. */}}
{{- define "pilotfish.drainDelayMs" -}}
{{- $unless := ternary 0 (mul 1000 (int .appGraceSeconds)) .nativeSidecar }}
{{- ternary .settings.drain_delay_ms $unless (hasKey .settings "drain_delay_ms") | int }}
{{- end -}}
