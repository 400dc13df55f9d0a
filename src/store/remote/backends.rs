//! The kinds of servers.

pub(super) mod backend;
pub(super) mod cloud;
pub(super) mod hub;
pub(super) mod s3;
pub(super) mod web;
