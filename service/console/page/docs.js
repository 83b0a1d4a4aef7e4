// Swagger UI over this sidecar's own document. Nothing is asked of any other host: no validator, no fonts.

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  docExpansion: "list",
  validatorUrl: null,
  // Requests go to the origin that this page came from, whatever the document says.
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
});
