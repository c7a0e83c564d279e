//! An echo server with rmcp.
//!
//! server stdio SETTING TOOLS
//! server http SETTING TOOLS PORT
//!
//! SETTING is `documented`, `fastest`, or `events`: as fastest, with sessions and streams of events.
//! TOOLS is the number of tools beside `echo`.

use std::borrow::Cow;

use axum::serve::ListenerExt;
use rmcp::{
    ServerHandler, ServiceExt,
    handler::server::{
        router::tool::{ToolRoute, ToolRouter},
        tool::ToolCallContext,
        wrapper::Parameters,
    },
    model::{CallToolResult, ContentBlock, ServerCapabilities, ServerConfig, Tool},
    schemars, tool, tool_handler, tool_router,
    transport::{
        stdio,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct EchoArguments {
    /// The text to return.
    text: String,
}

/// As the documentation writes a server with tools only.
#[derive(Clone)]
struct Documented;

#[tool_router(server_handler)]
impl Documented {
    #[tool(description = "Return the text.")]
    async fn echo(&self, Parameters(EchoArguments { text }): Parameters<EchoArguments>) -> String {
        text
    }
}

/// The same with a router that is made once.
#[derive(Clone)]
struct Fastest {
    router: std::sync::Arc<ToolRouter<Self>>,
}

#[tool_router(router = router_of_tools)]
impl Fastest {
    fn new(tools: usize) -> Self {
        let mut router = Self::router_of_tools();
        for number in 1..=tools {
            let schema = rmcp::handler::server::tool::schema_for_type::<EchoArguments>();
            let name: Cow<'static, str> = format!("tool_{number}").into();
            let text = format!("Tool number {number}: returns the text that it is given.");
            router.add_route(ToolRoute::new_dyn(
                Tool::new(name, text, schema),
                |_: ToolCallContext<Self>| {
                    Box::pin(async {
                        Ok(CallToolResult::success(vec![ContentBlock::text("done")]).into())
                    })
                },
            ));
        }
        Self { router: router.into() }
    }

    #[tool(description = "Return the text.")]
    async fn echo(&self, Parameters(EchoArguments { text }): Parameters<EchoArguments>) -> String {
        text
    }
}

#[tool_handler(router = self.router)]
impl ServerHandler for Fastest {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn run<S>(arguments: &[String], server: S) -> Result<(), Failure>
where
    S: ServerHandler + Clone + Send + Sync + 'static,
{
    if arguments[1] == "stdio" {
        server.serve(stdio()).await?.waiting().await?;
        return Ok(());
    }
    let config = if arguments[2] == "fastest" {
        StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_sse_keep_alive(None)
    } else {
        StreamableHttpServerConfig::default()
    };
    let service: StreamableHttpService<S, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(server.clone()), Default::default(), config);
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{}", arguments[4])).await?;
    let router = axum::Router::new().nest_service("/mcp", service);
    if arguments[2] == "documented" {
        axum::serve(listener, router).await?;
    } else {
        // Without this an event waits for the acknowledgement of what went before it: 40 ms.
        let listener = listener.tap_io(|connection| {
            let _ = connection.set_nodelay(true);
        });
        axum::serve(listener, router).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let tools: usize = arguments[3].parse()?;
    if arguments[2] != "documented" || tools > 0 {
        run(&arguments, Fastest::new(tools)).await
    } else {
        run(&arguments, Documented).await
    }
}
