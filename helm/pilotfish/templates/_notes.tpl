{{/* The text of NOTES.txt. */}}
{{- define "pilotfish.chart.notes" -}}
{{- $sidecar := dict "root" $ "values" .Values.pilotfish }}
{{- $values := include "pilotfish.values" $sidecar | fromYaml }}
{{- $namespace := .Release.Namespace }}
{{- $brokers := or $values.bootstrapServers (index $values.kafka "bootstrap.servers") $values.configMapName -}}
Pilotfish ({{ include "pilotfish.image" $values }}) is set up in namespace {{ $namespace }}.

What to do next
{{- if not $brokers }}

  Name the brokers; nothing can start without them:
      helm upgrade {{ .Release.Name }} … --reset-then-reuse-values --set pilotfish.bootstrapServers=HOST:9092
{{- end }}

  Give your workloads a sidecar. Either of these:
    - in your own chart: the templates of pilotfish-lib (helm/examples/own-chart)
    - on any manifest: pilotfish inject -f deploy.yaml
      {{- if include "pilotfish.hasConfig" $sidecar }} --config-map {{ include "pilotfish.configMapName" $sidecar }}{{ end }}
    - with kustomize: helm/kustomize/component
  The app then asks http://127.0.0.1:{{ $values.settings.api_port | default 8085 | int }}/v1/topics
{{- if and (.Values.tests).enabled $brokers }}

  See whether the brokers answer:
      helm test {{ .Release.Name }} --namespace {{ $namespace }} --logs
{{- end }}
{{- if ((.Values.demo).deployment).enabled }}

  Watch the demo:
      kubectl logs --namespace {{ $namespace }} --follow deployment/{{ include "pilotfish.fullname" $sidecar }}-demo
      kubectl exec --namespace {{ $namespace }} deployment/{{ include "pilotfish.fullname" $sidecar }}-demo -- pilotfish status
{{- end }}
{{- $warnings := include "pilotfish.chart.warnings" $ }}
{{- with trim $warnings }}

Look at these
{{ . }}
{{- end }}
{{- end -}}
