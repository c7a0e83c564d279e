//! Skills with rmcp.
//!
//!     rmcp_skills serve FOLDER
//!     rmcp_skills read ERA COMMAND…    (prints the digests of all files that it verified)
use std::{collections::BTreeMap, error::Error, sync::Arc};

use base64::{prelude::BASE64_STANDARD, Engine};
use percent_encoding::percent_decode_str;
use rmcp::{
    handler::server::skill_catalog::SkillCatalog,
    model::*,
    service::{ClientLifecycleMode, ClientServiceExt, RequestContext},
    transport::{stdio, TokioChildProcess},
    ClientHandler, ErrorData, RoleServer, ServerHandler, ServiceExt,
};
use tokio::process::Command;

#[derive(Clone)]
struct Skills(Arc<SkillCatalog>);

impl ServerHandler for Skills {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_resources()
            .enable_skills_with_directory_read()
            .build();
        ServerConfig::new(capabilities)
    }

    async fn list_skills(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        Ok(self.0.list_skills())
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        self.0.get_skill(&request.uri)
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        self.0.read_resource_directory(&request.uri)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let found = self.0.read_resource(&request.uri);
        found.map(Into::into).ok_or_else(|| ErrorData::resource_not_found(request.uri, None))
    }
}

#[derive(Clone, Default)]
struct Host;

impl ClientHandler for Host {}

async fn read(era: &str, command: &[String]) -> Result<(), Box<dyn Error>> {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    let lifecycle = match era {
        "modern" => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
        _ => ClientLifecycleMode::Initialize,
    };
    let client = Host.serve_with_lifecycle(TokioChildProcess::new(child)?, lifecycle).await?;
    let mut all = BTreeMap::new();
    for skill in client.list_all_skills().await? {
        skill.validate()?;
        let got = client.get_skill(GetSkillRequestParams::new(skill.uri.clone())).await?.skill;
        let SkillResources::Files(files) = &got.resources else {
            return Err("it has no files".into());
        };
        let mut found = BTreeMap::new();
        for file in files {
            let params = ReadResourceRequestParams::new(file.uri.clone());
            let data = match &client.read_resource(params).await?.contents[0] {
                ResourceContents::TextResourceContents { text, .. } => text.clone().into_bytes(),
                ResourceContents::BlobResourceContents { blob, .. } => BASE64_STANDARD.decode(blob)?,
                _ => return Err("neither text nor blob".into()),
            };
            file.verify(&data)?;
            let root = skill.uri.len() - "SKILL.md".len();
            let path = percent_decode_str(&file.uri[root..]).decode_utf8()?.into_owned();
            found.insert(path, file.digest.replace("sha256:", ""));
        }
        all.insert(skill.uri.clone(), found);
    }
    client.cancel().await?;
    println!("{}", serde_json::to_string(&all)?);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments[0] == "read" {
        return read(&arguments[1], &arguments[2..]).await;
    }
    let catalog = SkillCatalog::from_dir(&arguments[1])?;
    Skills(Arc::new(catalog)).serve(stdio()).await?.waiting().await?;
    Ok(())
}
