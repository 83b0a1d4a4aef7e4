{{/* Valid values that are often a mistake: a line each, for NOTES. Invalid values are rejected before. */}}
{{- define "pilotfish.chart.warnings" -}}
{{- $values := include "pilotfish.values" (dict "root" $ "values" .Values.pilotfish) | fromYaml }}
{{- $settings := $values.settings }}
{{- $kafka := $values.kafka }}
{{- $protocol := index $kafka "security.protocol" | default "PLAINTEXT" | upper }}
{{- if and (not (hasPrefix "SASL_" $protocol)) (index $kafka "sasl.mechanism") }}
  - pilotfish.kafka: sasl.mechanism has no effect with security.protocol {{ $protocol }}; SASL_SSL has both
{{- end }}
{{- if eq $protocol "SASL_PLAINTEXT" }}
  - pilotfish.kafka: SASL_PLAINTEXT sends everything, and with PLAIN the password too, unencrypted
{{- end }}
{{- if and (has $protocol (list "PLAINTEXT" "SASL_PLAINTEXT")) (include "pilotfish.chart.hasTlsFiles" $kafka) }}
  - pilotfish.kafka: settings of ssl.… have no effect with security.protocol {{ $protocol }}
{{- end }}
{{- if $values.readiness.enabled }}
  - pilotfish.readiness: a moment without Kafka takes the whole pod, the app too, out of its Services
{{- end }}
{{- if and $values.spool.enabled (hasKey $values.spool.volume "emptyDir") }}
  - pilotfish.spool: an emptyDir goes with its pod, and undelivered records that were answered 202 are lost;
    use a persistentVolumeClaim
{{- end }}
{{- if and $values.spool.enabled (hasKey $values.spool.volume "ephemeral") }}
  - pilotfish.spool: an ephemeral volume goes with its pod, and undelivered records that were answered 202 are lost;
    use a persistentVolumeClaim
{{- end }}
{{- if not $values.nativeSidecar }}
  - pilotfish.nativeSidecar=false: every pod takes {{ include "pilotfish.drainDelayMs" $values }} ms longer to end, and a Job must call
    `pilotfish quit` as its last step
{{- end }}
{{- if eq ($settings.startup_require_metadata | default "wait") "strict" }}
  - pilotfish.settings: startup_require_metadata=strict keeps apps from starting while Kafka is away
{{- end }}
{{- if not (has ($settings.api_host | default "127.0.0.1") (list "127.0.0.1" "localhost" "::1")) }}
  - pilotfish.settings: api_host={{ $settings.api_host }} lets other pods in
    {{- if not $settings.tokens_file }}, and no tokens_file asks who they are{{ end }}
{{- end }}
{{- if (($values.resources).limits).cpu }}
  - pilotfish.resources: a CPU limit throttles the poll loop, and requests expire meanwhile
{{- end }}
{{- if not (($values.resources).limits).memory }}
  - pilotfish.resources: without a memory limit, a sidecar may use all memory of the node
{{- end }}
{{- if and (eq $values.image.tag "latest") (not $values.image.digest) }}
  - pilotfish.image: latest is another image tomorrow; name a version or a digest
{{- end }}
{{- if $values.configMapName }}
  - pilotfish.configMapName: pods are not replaced when {{ $values.configMapName }} changes
{{- end }}
{{- if and (.Values.networkPolicy).enabled (not .Values.networkPolicy.extraIngress) }}
  - networkPolicy: nothing reaches the app's own ports in pods with a sidecar; list them in extraIngress
{{- end }}
{{- if and (.Values.prometheusRule).enabled (not (.Values.podMonitor).enabled) }}
  - prometheusRule: alerts without podMonitor see nothing unless something else scrapes the sidecars
{{- end }}
{{- if and (.Values.prometheusRule).enabled (not .Values.prometheusRule.runbookUrl) }}
  - prometheusRule.runbookUrl: without it the alerts' runbook_url is a path, docs/alerts.md, which no pager can open
{{- end }}
{{- end -}}

{{- define "pilotfish.chart.hasTlsFiles" -}}
{{- range $name, $value := . }}
{{- if and (hasPrefix "ssl." $name) $value }}yes{{ end }}
{{- end }}
{{- end -}}
